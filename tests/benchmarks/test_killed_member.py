"""What members tell, and when a partition goes on."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from benchmarks.killed_member import Seen, _Java, _Ours, kill_one

if TYPE_CHECKING:
    from pathlib import Path


def test_our_member(tmp_path: Path) -> None:
    lines = ["assigned 1 t 0", "assigned 1 t 1", "revoked 2 t 1", "record 3 t 0 2.9 1 0 7 7", "rec"]
    (tmp_path / "victim-12.members").write_text("\n".join(lines))
    assert _Ours("b:1", "g", "classic", tmp_path).seen("victim") == Seen(
        {0}, {0: 1.0, 1: 1.0}, [(3.0, 0)]
    )


def test_javas_member(tmp_path: Path) -> None:
    def event(name: str, *partitions: int, **more: Any) -> str:
        listed = [{"topic": "t", "partition": each} for each in partitions]
        return json.dumps({"name": name, "partitions": listed, **more})

    lines = [
        event("partitions_assigned", 0, 1, timestamp=1000),
        event("partitions_revoked", 1),
        event("record_data", partition=0, offset=7, timestamp=3000),
        '{"name": "rec',
    ]
    (tmp_path / "victim").write_text("\n".join(lines))
    assert _Java("b:1", "g", "classic", tmp_path).seen("victim") == Seen(
        {0}, {0: 1.0, 1: 1.0}, [(3.0, 0)]
    )


async def test_the_time_of_a_partition_ends_with_its_first_record() -> None:
    class Process:
        returncode = None

        def send_signal(self, _signal: int) -> None:
            self.returncode = -9

        def kill(self) -> None:
            self.returncode = -9

        async def wait(self) -> None: ...

    class Played:
        async def start(self, _name: str) -> Process:
            return Process()

        def seen(self, name: str) -> Seen:
            now = began + 100
            mine = {0, 1, 2, 3} if name == "victim" else {4, 5, 6, 7}
            records = [(now + n + r, n) for n in range(8) for r in (0, 9)]
            return Seen(mine, dict.fromkeys(range(8), began + 50), [(began, 0), *records])

    began = time.time()
    times = await kill_one(Played(), 0)
    assert sorted(round(first - given) for given, first in times) == [50, 51, 52, 53]
    assert all(40 < given <= 50 for given, _ in times), "since the kill, which follows at once"
