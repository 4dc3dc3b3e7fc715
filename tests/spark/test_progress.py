"""Lag, rows and bytes from Spark's progress."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from kafkaclient.spark.progress import QueryProgress, SourceProgress, progress
from kafkaclient.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def source(start: object, end: object, latest: object, rows: int = 5) -> dict[str, object]:
    return {"startOffset": start, "endOffset": end, "latestOffset": latest, "numInputRows": rows}


OURS = source({"t": {"0": 3}}, {"t": {"0": 8, "1": 0}}, {"t": {"0": 10, "1": 4, "2": 1}})


def query(*sources: dict[str, object], **observed: object) -> SimpleNamespace:
    last = {"batchId": 7, "sources": sources, "observedMetrics": observed}
    return SimpleNamespace(lastProgress=last)


def test_offsets_behind_latest() -> None:
    found = progress(query(OURS, kafkaclient={"bytes": 12}, other={"x": 1}))
    behind = {T0: 2, T1: 4, TopicPartition("t", 2): 0}
    assert found == QueryProgress(7, (SourceProgress(5, 5, behind),), 12)
    (only,) = found.sources
    assert (only.min_offsets_behind_latest, only.max_offsets_behind_latest) == (0, 4)
    assert only.avg_offsets_behind_latest == pytest.approx(2)


def test_as_text() -> None:
    """The offsets in Spark's JSON, and in a listener's event."""
    names = ("startOffset", "endOffset", "latestOffset")
    text = OURS | {name: json.dumps(OURS[name]) for name in names}
    assert progress(query(text)) == progress(query(OURS).lastProgress)


def test_other_sources_and_nothing_yet() -> None:
    assert progress(SimpleNamespace(lastProgress=None)) is None
    others = [source(None, 5, None), source("0", "3", "7"), source({}, {}, {}), source(0, "x", 1)]
    assert progress(query(*others)) == QueryProgress(7, (), None)
    first = progress(query(source(None, {"t": {"0": 2}}, None), kafkaclient={"bytes": None}))
    assert first == QueryProgress(7, (SourceProgress(5, None, None),), 0)
    (only,) = first.sources
    assert only.min_offsets_behind_latest is only.max_offsets_behind_latest is None
    assert only.avg_offsets_behind_latest is None


@pytest.mark.parametrize(
    ("start", "end", "read"),
    [
        ({"0": 3}, {"0": 8, "1": 4}, None),  # an added partition
        ({"0": 3}, {"0": 8, "1": 0}, 5),
        ({"0": 3, "1": 4}, {"0": 8}, 5),  # a partition that is gone
        ({"0": 3, "1": 9}, {"0": 8, "1": 2}, 5),  # one that was created again
    ],
)
def test_offsets_read(start: object, end: object, read: int | None) -> None:
    found = progress(query(source({"t": start}, {"t": end}, {"t": end})))
    assert found is not None
    assert found.sources[0].offsets == read
