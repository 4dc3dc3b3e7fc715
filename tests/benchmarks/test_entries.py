from __future__ import annotations

from importlib import import_module

import pytest

from benchmarks.produce.bench import in_turn
from benchmarks.produce.entries import ALL, FRANZ, JAVA, OURS, choose
from benchmarks.produce.entry import Entry, Job
from benchmarks.produce.targets import judge
from benchmarks.produce.worker import MODULES


def test_names_are_unique_and_what_is_like_another_comes_after_it() -> None:
    names = [entry.name for entry in ALL]
    assert len(set(names)) == len(names)
    for place, entry in enumerate(ALL):
        assert entry.like is None or entry.like in names[:place]


@pytest.mark.parametrize("entry", ALL, ids=lambda entry: entry.name)
def test_every_way_exists(entry: Entry) -> None:
    client, way = entry.client, entry.way
    if client not in (JAVA, FRANZ):
        pytest.importorskip("confluent_kafka")
        assert way in import_module(f"benchmarks.produce.{MODULES[client]}").WAYS


def test_every_target_has_its_entries() -> None:
    runs = [
        {
            "client": entry.client,
            "setting": entry.setting,
            "rss_over_time_mb": [[0, 1], [1, 1], [2, 1]],
            **dict.fromkeys(
                (
                    *("records_per_s", "cpu_us_per_record", "p50_ms", "lag_p99_ms", "lag_p999_ms"),
                    *("rss_start_mb", "rss_peak_mb", "buffer_memory_mb", "idle_cpu_share"),
                ),
                1.0,
            ),
        }
        for entry in ALL
    ]
    assert [line.what for line in judge(runs) if line.value is None] == []


def test_rounds_go_through_all_entries() -> None:
    first, second = ALL[0], ALL[1]
    assert in_turn([first, second], 2) == [(1, first), (1, second), (2, first), (2, second)]


def test_patterns_find_clients_settings_and_what_they_are_like() -> None:
    assert choose([]) == list(ALL)
    assert [entry.name for entry in choose(["send_nowait"])] == [f"{OURS}: send_nowait"]
    assert {entry.client for entry in choose(["confluent"])} == {"confluent"}
    found = [entry.name for entry in choose(["batches as send_nowait's"])]
    assert found == [f"{OURS}: send_nowait", "raw socket: batches as send_nowait's"]
    assert choose(["nothing like it"]) == []


def test_a_job_survives_the_way_to_its_process() -> None:
    job = Job(entry=ALL[1], bootstrap="127.0.0.1:1", topic="t", folder="f", seconds=1.5)
    assert Job.from_json(job.to_json()) == job
