"""What the experiment is to do."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from experiments.options import Listed, check_positive, parse_peers
from kafkaclient.errors import ConfigError

__all__ = [
    "FAUST",
    "FAUST_ROCKSDB",
    "KAFKA_STREAMS",
    "OURS",
    "PEERS",
    "QUIX",
    "Plan",
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

    peers: Annotated[
        tuple[str, ...],
        Listed(
            partial(parse_peers, known=PEERS),
            f"Processors beside ours: {', '.join(PEERS)}, joined by commas.",
        ),
    ] = ()
    words: Annotated[int, "Words to count."] = 1_000_000
    runs: Annotated[int, "Runs of each processor, in turns."] = 3
    vocabulary: Annotated[int, "Different words."] = 10_000
    """Word number n occurs about 1/n times as often as the first."""
    words_per_line: Annotated[int, "Words in a line."] = 10
    partitions: Annotated[int, "Partitions of the topics."] = 4
    stall_s: Annotated[float, "Give a run up after this many seconds without a commit."] = 60.0
    quix_python: Annotated[Path, "Python of the environment with Quix Streams."] = Path(
        "build/quix/bin/python"
    )
    faust_python: Annotated[Path, "Python of the environment with faust-streaming."] = Path(
        "build/faust/bin/python"
    )
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
