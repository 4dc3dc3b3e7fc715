"""Metrics that a client pushes to brokers which ask for them (KIP-714, KIP-1076)."""
