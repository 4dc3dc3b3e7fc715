"""aiokafka's partitioners, in the drop-in."""

from __future__ import annotations

import re
from typing import Any

import pytest
from aiokafka.partitioner import DefaultPartitioner, murmur2

from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import FakeCluster
from tests.aiokafka_dropin.support import dropin


def cluster() -> FakeCluster:
    fake = FakeCluster()
    fake.create_topic("t", 6)
    return fake


@virtual_time
async def test_a_key_has_the_partition_that_aiokafka_gives_it() -> None:
    fake, theirs = cluster(), DefaultPartitioner()
    async with dropin(fake) as producer:
        for n in range(40):
            key = b"k%d" % n
            metadata = await producer.send_and_wait("t", b"v", key=key)
            assert metadata.partition == theirs(key, list(range(6)), list(range(6)))
            assert producer._partition("t", None, key, b"v", key, b"v") == metadata.partition


@virtual_time
async def test_a_function_gets_the_serialized_key_and_the_partitions() -> None:
    fake, calls = cluster(), []

    def choose(key: bytes | None, everything: list[int], available: list[int]) -> int:
        calls.append((key, everything, available))
        return everything[-1] if key is None else murmur2(key) % 2

    fake.move_leader("t", 3, -1)
    async with dropin(fake, partitioner=choose, key_serializer=_encode) as producer:
        metadata = await producer.send_and_wait("t", b"v")
        assert metadata.partition == 5
        assert producer._partition("t", None, None, b"v", None, b"v") == 5
        metadata = await producer.send_and_wait("t", b"v", key="k")
        assert metadata.partition == murmur2(b"k") % 2
        count = len(calls)
        assert (await producer.send_and_wait("t", b"v", partition=4)).partition == 4
        assert len(calls) == count
    assert calls[0] == (None, [0, 1, 2, 3, 4, 5], [0, 1, 2, 4, 5])
    assert calls[-1][0] == b"k"


@virtual_time
async def test_a_functions_own_exception_reaches_the_caller() -> None:
    def refuse(*_: Any) -> int:
        raise LookupError("no partition for this key")

    async with dropin(cluster(), partitioner=refuse) as producer:
        with pytest.raises(LookupError, match="no partition for this key"):
            await producer.send("t", b"v")


@virtual_time
async def test_a_subclass_of_the_default_partitioner_is_asked() -> None:
    class Last(DefaultPartitioner):  # type: ignore[misc]  # aiokafka has no types
        def __call__(self, _key: Any, everything: list[int], _available: Any) -> int:
            return everything[-1]

    async with dropin(cluster(), partitioner=Last()) as producer:
        assert (await producer.send_and_wait("t", b"v", key=b"k")).partition == 5


@virtual_time
async def test_the_partition_of_a_record_without_key_is_not_known_beforehand() -> None:
    """It goes where a broker can take it; aiokafka's answer would be another random draw."""
    async with dropin(cluster()) as producer:
        await producer.client._wait_on_metadata("t")
        assert producer._partition("t", None, None, b"v", None, b"v") is None
        assert producer._partition("t", 2, None, b"v", None, b"v") == 2
        for wrong in (6, -1):
            with pytest.raises(AssertionError):
                producer._partition("t", wrong, None, b"v", None, b"v")


class Last:
    """A partitioner of kafkaclient."""

    def partition(self, topic: str, _key: Any, _value: Any, cluster: Any, _load: Any) -> int:
        return int(cluster.topics[topic].partition_count) - 1


@pytest.mark.parametrize(
    ("options", "is_told"),
    [
        ({}, True),
        ({"partitioner": None}, True),
        ({"partitioner": "late"}, True),
        ({"partitioner": "kip794"}, True),
        ({"partitioner": "sticky"}, True),
        ({"partitioner": "random"}, True),
        ({"partitioner": lambda key, everything, available: everything[len(key)]}, True),
        ({"partitioner": "uniform-sticky"}, False),
        ({"partitioner": "round-robin"}, False),
        ({"partitioner": Last()}, False),
        ({"partitioner_ignore_keys": True}, False),
        ({"partitioner": "random", "partitioner_ignore_keys": True}, False),
    ],
    ids=lambda value: re.sub(" at 0x.*?>", ">", str(value)),
)
@virtual_time
async def test_the_partition_that_is_told_is_the_partition_that_a_key_gets(
    options: dict[str, Any], is_told: bool
) -> None:
    async with dropin(cluster(), **options) as producer:
        await producer.client._wait_on_metadata("t")
        for _ in range(4):
            told = producer._partition("t", None, b"UA", b"v", b"UA", b"v")
            metadata = await producer.send_and_wait("t", b"v", key=b"UA")
            assert told == (metadata.partition if is_told else None)


def _encode(text: str | None) -> bytes | None:
    return None if text is None else text.encode()
