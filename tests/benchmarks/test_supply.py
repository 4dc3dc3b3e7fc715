from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from benchmarks.produce.entry import FLIGHTS, Entry, Job
from benchmarks.produce.supply import Supply

if TYPE_CHECKING:
    from pathlib import Path

ENTRY = Entry(client="c", setting="s", way="w")
JOB = Job(entry=ENTRY, bootstrap="", topic="t", folder="", seconds=60.0, records=100)


def test_the_bound_in_records_is_reached_by_whole_chunks() -> None:
    supply = Supply(JOB, 32)
    assert [len(values) for values, _keys in supply.offered()] == [32, 32, 32, 32]
    assert supply.records == 128
    assert supply.value_bytes == 100


def test_a_slow_client_gets_fewer() -> None:
    supply = Supply(replace(JOB, entry=replace(ENTRY, slow=10)), 1)
    assert sum(1 for _ in supply.offered()) == 10


def test_time_ends_it() -> None:
    assert list(Supply(replace(JOB, seconds=0.0), 32).offered()) == []


def test_keys_are_many_and_of_8_bytes() -> None:
    supply = Supply(replace(JOB, entry=replace(ENTRY, keyed=True)), 32)
    keys = [key for chunk in supply.chunks for key in chunk.keys]
    assert {len(key) for key in keys} == {8}
    assert len(set(keys)) == len(keys) > 10_000


def test_flights_come_from_the_folder_when_they_are_there(tmp_path: Path) -> None:
    (tmp_path / "flights.jsonl").write_bytes(b'{"flight":1}\n{"flight":22}')
    job = replace(JOB, entry=replace(ENTRY, value_bytes=FLIGHTS), folder=str(tmp_path))
    supply = Supply(job, 2)
    assert supply.chunks[0].values == [b'{"flight":1}', b'{"flight":22}']
    assert supply.value_bytes == pytest.approx(12.5)
