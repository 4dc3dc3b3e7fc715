"""The tables of KIP-794's test results.

They were measured with three brokers on the author's machine, a topic with 3 partitions and one
replica, 122,880 records of 512 bytes, and 20 ms of sleep before each produce response of broker 0.
The default of linger.ms was 0 at that time.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PUBLISHED", "Published"]


@dataclass(frozen=True, slots=True)
class Published:
    """One of the KIP's runs, and the settings here that correspond to it."""

    rate: float
    name: str
    mb_per_s: float
    avg_ms: float
    p99_ms: float
    p999_ms: float
    bytes_per_broker: tuple[int, int, int]
    java: str | None
    """The setting of Java's producer 4; None: it no longer has this partitioner."""
    ours: str

    @property
    def slow_share(self) -> float:
        """Broker 0's share of the bytes."""
        return self.bytes_per_broker[0] / sum(self.bytes_per_broker)


PUBLISHED = (
    Published(
        *(2048, "Old DefaultPartitioner", 0.84, 4072.74, 10992, 11214),
        (46_826_262, 9_207_276, 9_004_193),
        None,
        "sticky linger 0",
    ),
    Published(
        *(2048, "partitioner.adaptive.partitioning.enable=false", 1.00, 49.92, 214, 422),
        (22_237_614, 21_606_034, 22_152_273),
        "uniform linger 0",
        "kip794 uniform linger 0",
    ),
    Published(
        *(2048, "New logic with all default settings", 1.00, 40.06, 154, 220),
        (19_244_362, 23_589_010, 23_321_818),
        "adaptive linger 0",
        "kip794 adaptive linger 0",
    ),
    Published(
        *(2048, "partitioner.availability.timeout.ms=5", 1.00, 36.29, 150, 184),
        (17_431_944, 25_781_879, 22_977_244),
        "availability 5 ms linger 0",
        "kip794 availability 5 ms linger 0",
    ),
    Published(
        *(4096, "partitioner.adaptive.partitioning.enable=false", 1.85, 426.24, 2408, 2468),
        (22_396_882, 21_652_393, 21_355_134),
        "uniform linger 0",
        "kip794 uniform linger 0",
    ),
    Published(
        *(4096, "New logic with all default settings", 1.99, 34.66, 167, 297),
        (14_866_064, 25_176_418, 25_581_116),
        "adaptive linger 0",
        "kip794 adaptive linger 0",
    ),
)
