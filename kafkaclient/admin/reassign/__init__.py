"""Partition reassignments (KIP-455) with replication throttles (KIP-73)."""
