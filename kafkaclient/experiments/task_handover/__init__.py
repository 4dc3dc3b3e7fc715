"""Tasks with state handed over between instances: with KIP-441, without, and other libraries."""
