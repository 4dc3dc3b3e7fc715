"""What a member writes down: its partitions, and each record before it steps on.

Each line goes to the operating system at once, so that it survives the death of the process.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from experiments.consumer_chaos.load import read_value

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from kafkaclient.types import TopicPartition

__all__ = ["MemberLog", "Processed", "Stint", "read_logs", "read_stints"]

_FOREVER = float("inf")


class Processed(NamedTuple):
    """A record that a member has finished; times are seconds since 1970."""

    taken: float
    finished: float
    in_session: bool
    """Whether the member was surely in its group when it took the record."""
    life: int
    offset: int
    number: int


@dataclass(slots=True)
class Stint:
    """The time in which a member has a partition, by its own judgment."""

    member: str
    topic: str
    partition: int
    began: float
    ended: float = _FOREVER
    """For ever, if the process died."""
    how: str = "died"
    records: list[Processed] = field(default_factory=list)


class MemberLog:
    """Writes the file of one process."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def partitions(self, change: str, partitions: Iterable[TopicPartition]) -> None:
        """Partitions were ``assigned``, ``revoked`` or ``lost``."""
        now = time.time()
        self._write("".join(f"{change} {now:.6f} {tp.topic} {tp.partition}\n" for tp in partitions))

    def processed(
        self, taken: float, topic: str, partition: int, offset: int, value: bytes, *, surely: bool
    ) -> None:
        life, number = read_value(value)
        self._write(
            f"record {time.time():.6f} {topic} {partition} {taken:.6f} {int(surely)} {life} "
            f"{offset} {number}\n"
        )

    def stopped(self) -> None:
        """The consumer is stopped, and has no partitions any more."""
        self._write(f"stopped {time.time():.6f}\n")

    def _write(self, text: str) -> None:
        os.write(self._file, text.encode())

    def close(self) -> None:
        os.close(self._file)


def read_logs(folder: Path) -> list[Stint]:
    """The stints of all members. The file of a process is called after the member."""
    return [
        stint
        for path in sorted(folder.glob("*.members"))
        for stint in read_stints(path.stem.rpartition("-")[0], path.read_text().splitlines())
    ]


def read_stints(member: str, lines: Iterable[str]) -> list[Stint]:
    """The stints of one process, in the order in which they began. A record is one of the stint in
    which it was taken: the handler may finish it when the partition was lost and is there again."""
    stints: list[Stint] = []
    before: dict[tuple[str, int], Stint] = {}
    last: dict[tuple[str, int], Stint] = {}
    for line in lines:
        kind, at, *rest = line.split()
        if kind == "stopped":
            for stint in last.values():
                if stint.ended == _FOREVER:
                    stint.ended, stint.how = float(at), kind
            continue
        where = rest[0], int(rest[1])
        if kind == "assigned":
            if where in last:
                before[where] = last[where]
            last[where] = Stint(member, *where, float(at))
            stints.append(last[where])
        elif kind == "record":
            taken, surely, life, offset, number = rest[2:]
            is_late = where in before and float(taken) < last[where].began
            (before if is_late else last)[where].records.append(
                Processed(
                    *(float(taken), float(at), surely == "1"),
                    *(int(life), int(offset), int(number)),
                )
            )
        else:
            last[where].ended, last[where].how = float(at), kind
    return stints
