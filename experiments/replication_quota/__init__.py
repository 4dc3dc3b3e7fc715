"""KIP-73's test plan: replicas move at the rate of their quota, with load and without."""
