"""KIP-578's appendix A: throughput, creation and deletion by partitions on each broker."""
