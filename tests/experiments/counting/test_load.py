"""The keys of the input."""

from __future__ import annotations

from itertools import islice

from experiments.counting.load import Load, LoadSpec, key_of
from kafkaclient.wire.murmur2 import partition_for_key


def keys(count: int, **options: int) -> list[bytes]:
    spec = LoadSpec(**{"keys": 1000, "value_size": 8, "tasks": 4, "seed": 1, **options}, rate=1.0)
    return list(islice(Load(spec, "localhost:9092", "in").keys(), count))


def test_every_task_gets_a_record_in_turn() -> None:
    assert [partition_for_key(key, 4) for key in keys(8)] == [0, 1, 2, 3, 0, 1, 2, 3]


def test_the_seed_decides() -> None:
    assert keys(50) == keys(50) != keys(50, seed=2)


def test_fewer_keys_than_tasks() -> None:
    assert set(keys(9, keys=1)) == {key_of(0)}
