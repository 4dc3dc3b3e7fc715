"""KIP-794's experiment: one of several brokers answers late, and clients choose partitions."""
