"""KIP-578's appendix A: what more and more partitions on each broker cost."""
