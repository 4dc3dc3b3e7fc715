"""The figures of KIP-578's appendix A: three m5.large brokers, Kafka 2.3.1, records of 1 KB."""

from __future__ import annotations

__all__ = ["LEADERS_GONE_MIN", "THROUGHPUT_MBPS"]

THROUGHPUT_MBPS: dict[int, dict[int, float]] = {
    3: {10: 52, 100: 101, 500: 86, 1000: 12, 5000: 2.5, 10_000: 0.9},
    1: {10: 142, 100: 113, 500: 104, 1000: 99, 5000: 24, 10_000: 16},
}
"""A1: replication factor -> partitions on a broker -> Mbps of ``kafka-producer-perf-test``."""

LEADERS_GONE_MIN: dict[int, float] = {
    30_000: 100,
    20_000: 43,
    10_000: 9,
    5_000: 3,
    1_000: 1,
    100: 1,
    10: 1,
}
"""A2, deletion of a topic of 30,000 partitions: partitions that still had a leader -> minutes until
then; 1 means less than a minute. Directories were created in 30 minutes, and never removed."""
