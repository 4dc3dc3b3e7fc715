"""What the experiment is to do."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from experiments.options import check_libraries, check_positive
from kafkaclient.errors import ConfigError

__all__ = [
    "FAUST",
    "FAUST_ROCKSDB",
    "KAFKA_STREAMS",
    "OURS",
    "PEERS",
    "QUIX",
    "Plan",
    "check_streams",
]

OURS = "kafkaclient"
QUIX = "quixstreams"
FAUST = "faust"
"""faust-streaming with its default table, which is in memory."""
FAUST_ROCKSDB = "faust-rocksdb"
KAFKA_STREAMS = "kafka-streams"
PEERS = (QUIX, FAUST, FAUST_ROCKSDB, KAFKA_STREAMS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """An experiment. Raises ConfigError for values that make no sense."""

    peers: tuple[str, ...] = ()
    words: int = 1_000_000
    runs: int = 3
    words_per_line: int = 10
    vocabulary: int = 10_000
    """Different words. Word number n occurs about 1/n times as often as the first."""
    partitions: int = 4
    """Partitions of the input topic and of the topic of the words."""
    stall_s: float = 60.0
    """A run ends, with what was counted, when nothing was committed for this time."""
    quix_python: Path = Path("build/quix/bin/python")
    """The interpreter of the environment that has Quix Streams."""
    faust_python: Path = Path("build/faust/bin/python")
    """The interpreter of the environment that has faust-streaming."""
    seed: int = 1

    def __post_init__(self) -> None:
        check_positive(
            words=self.words,
            runs=self.runs,
            words_per_line=self.words_per_line,
            vocabulary=self.vocabulary,
            partitions=self.partitions,
            stall=self.stall_s,
        )
        for peers, option, python in (
            ((QUIX,), "--quix-python", self.quix_python),
            ((FAUST, FAUST_ROCKSDB), "--faust-python", self.faust_python),
        ):
            wanted = [peer for peer in peers if peer in self.peers]
            if wanted and not python.exists():
                raise ConfigError(
                    f"{option}: there is no {python}, which {wanted[0]} needs; `make peers` makes "
                    "the environments"
                )

    @property
    def clients(self) -> tuple[str, ...]:
        """Who counts, in the order of a round."""
        return (OURS, *self.peers)

    def as_json(self) -> dict[str, Any]:
        """The plan as plain JSON values, without folders of this machine."""
        values = asdict(self)
        del values["quix_python"], values["faust_python"]
        return values | {"peers": list(self.peers)}


def check_streams() -> None:
    """Raise ConfigError if a library of the runtime is missing."""
    check_libraries({"rocksdict": "streams"})
