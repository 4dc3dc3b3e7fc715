from __future__ import annotations

import json
import struct
from collections import Counter

import pytest

from experiments.chaos.streams import (
    KINDS,
    SMALLEST_RECORD,
    Spec,
    Stamp,
    Stream,
    order,
    read_stamp,
    stamp,
)


def test_a_record_says_whose_it_is_and_has_its_size() -> None:
    for size in (SMALLEST_RECORD, 100, 1000):
        value = stamp(3, 500, 70_000, 12.5, size)
        assert len(value) == size
        assert read_stamp(value) == Stamp(3, 500, 70_000, 12.5)
    with pytest.raises(struct.error):
        read_stamp(b"short")


def test_streams_are_numbered_and_know_their_key_and_partition(spec: Spec) -> None:
    streams = spec.streams
    assert len(streams) == len(set(streams)) == 2 * (1 + 2 + 3)
    assert Stream(0, "unkeyed", 0).key is Stream(0, "unkeyed", 0).partition is None
    assert Stream(1, "keyed", 1).key == b"p1-k1"
    assert Stream(1, "keyed", 1).partition is None
    assert Stream(1, "explicit", 2).partition == 2
    assert Stream(1, "explicit", 2).key is None
    keys = [stream.key for stream in streams if stream.kind == "keyed"]
    assert len(set(keys)) == len(keys)  # each key has one producer, so one order


def test_each_producer_takes_its_own_streams_each_kind_as_often(spec: Spec) -> None:
    streams, places = spec.streams, order(spec, 1)
    assert places == order(spec, 1)
    taken = Counter(streams[place] for place in places)
    assert set(taken) == {stream for stream in streams if stream.producer == 1}
    kinds = Counter(streams[place].kind for place in places)
    assert max(kinds.values()) - min(kinds.values()) <= 1
    assert set(kinds) == set(KINDS)


def test_a_spec_goes_through_json(spec: Spec) -> None:
    assert Spec.from_json(json.loads(json.dumps(spec.as_json()))) == spec
