"""Which client gets which task: pure functions of what the group's leader knows (KIP-441)."""
