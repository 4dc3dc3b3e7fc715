"""Which client gets which task (KIP-441): pure functions of what the group's leader knows."""
