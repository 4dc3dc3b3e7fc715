"""KIP-73's test plan: replicas move at the rate that the quota dictates, with and without load."""
