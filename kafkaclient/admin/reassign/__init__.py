"""Replicas moved to other brokers (KIP-455), within a quota of bandwidth (KIP-73)."""
