"""``SyncProducer.send_many``."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from kafkaclient.errors import (
    BufferFullError,
    InvalidRecordError,
    MetadataTimeoutError,
)
from tests.sync.support import busy, one_topic, running, stalled, values


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ({"values": "abc"}, "values must be a sequence"),
        ({"values": b"abc"}, "values must be a sequence"),
        ({"values": None}, "values must be a sequence"),
        ({"values": {"a": 1}}, "values must be a sequence"),
        ({"values": ["a"], "keys": "k"}, "keys must be a sequence"),
        ({"values": ["a"], "headers": 5}, "headers"),
    ],
)
def test_a_column_that_is_no_sequence(column: Any, text: str) -> None:
    fake = one_topic()
    options = {"value_serializer": lambda v: b"%r" % v}
    with running(fake, **options) as producer, pytest.raises(InvalidRecordError, match=text):
        producer.send_many("t", **column)
    assert values(fake) == []


@pytest.mark.parametrize("serializers", [False, True])
def test_nothing_that_the_caller_changes_later_is_sent(serializers: bool) -> None:
    options: dict[str, Any] = {"value_serializer": bytes} if serializers else {}
    fake, key, header = one_topic(), bytearray(b"key"), bytearray(b"header")
    each: list[Any] = [("own", header)]
    with running(fake, **options) as producer:
        producer.start()
        with busy(producer):
            producer.send_many("t", [b"1"], keys=[key], headers=[("h", header)])
            producer.send_many("t", [b"2"], keys=[memoryview(key)], record_headers=[each])
            key[:1], header[:1] = b"X", b"X"
            each.append(("later", b""))
    assert [record.key for record in fake.log("t", 0)] == [b"key"] * 2
    assert [r.headers for r in fake.log("t", 0)] == [(("h", b"header"),), (("own", b"header"),)]


def test_headers_that_are_no_pairs_name_the_record() -> None:
    with running(one_topic()) as producer:
        with pytest.raises(InvalidRecordError, match="record 1: headers") as caught:
            producer.send_many("t", [b"x", b"y"], record_headers=[None, 5])  # type: ignore[list-item]
        assert caught.value.index == 1


@pytest.mark.parametrize("where", ["values", "keys", "headers", "record_headers"])
def test_all_that_is_sent_counts_for_buffer_memory(where: str) -> None:
    blob = bytes(400_000)
    columns: dict[str, Any] = {
        "values": {"values": [blob]},
        "keys": {"values": [None], "keys": [blob]},
        "headers": {"values": [b""], "headers": [("h", blob)]},
        "record_headers": {"values": [b""], "record_headers": [[("h", blob)]]},
    }[where]
    fake = one_topic(auto_create_topics=False)
    with running(fake, max_block_ms=700, buffer_memory=1_000_000) as producer:
        producer.send_and_wait("t", b"")

        async def send_without_waiting() -> None:
            for _ in range(20):
                producer.send_many("missing", **columns)

        with pytest.raises(BufferFullError, match="runs an event loop"):
            asyncio.run(send_without_waiting())


def test_each_call_waits_for_max_block_ms_once() -> None:
    """Not for its own time and for the time of the calls before, which is 12 s in all."""
    _, producer = stalled(max_request_size=1000, max_block_ms=1500)
    began = time.monotonic()
    futures = [producer.send_many("t", [bytes(900)] * 5) for _ in range(8)]
    futures += [producer.send_many("unknown", [b"x"]) for _ in range(3)]
    for future in futures[1:]:  # the first one has filled the buffer
        assert isinstance(future.exception(30), (BufferFullError, MetadataTimeoutError))
    assert time.monotonic() - began < 8
    producer.close(0)


def test_after_its_first_record_a_call_has_max_block_ms_for_each_wait() -> None:
    fake = one_topic()
    options = {"buffer_memory": 4000, "batch_size": 1000, "linger_ms": 0, "max_block_ms": 1000}
    with running(fake, max_request_size=1000, **options) as producer:
        producer.send_and_wait("t", b"0")
        fake.delay_produce(0, 0.05)
        began = time.monotonic()
        assert producer.send_many("t", [bytes(900)] * 40).result(20).records == 40
        assert time.monotonic() - began > 1.1
