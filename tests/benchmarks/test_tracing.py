"""The benchmark of tracing measures each way, and leaves no instrumentation behind."""

from __future__ import annotations

from benchmarks import tracing
from kafkaclient import Producer


async def test_each_way_is_measured() -> None:
    before = dict(vars(Producer))
    rows = await tracing.measure(2, 500)
    assert [row["way"] for row in rows] == [
        "send_nowait",
        "send_nowait, sampled 1 %",
        "send_nowait, always on",
    ]
    assert all(0 < row["call_us"] < row["whole_us"] for row in rows)
    assert dict(vars(Producer)) == before
