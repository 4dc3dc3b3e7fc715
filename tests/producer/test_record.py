"""What a caller may give as a record, and what is made of it."""

from __future__ import annotations

from typing import Any

import pytest

from kafkaclient.config import ProducerConfig
from kafkaclient.producer.record import Record, checked_record

CONFIG = ProducerConfig.build(None, {"bootstrap_servers": "localhost:9092"})


def checked(value: Any = None, key: Any = None, headers: Any = ()) -> Record:
    return checked_record(CONFIG, lambda: 0.0, "t", value, key, None, None, headers)


@pytest.mark.parametrize("buffer", [bytearray, lambda given: memoryview(bytearray(given))])
def test_buffers_are_copied(buffer: Any) -> None:
    key, value, header = buffer(b"key"), buffer(b"value"), buffer(b"header")
    record = checked(value, key, [("name", header)])
    for given in (key, value, header):
        given[:] = bytes(len(given))
    assert record[1:4] == (b"key", b"value", (("name", b"header"),))


def test_bytes_are_taken_as_they_are() -> None:
    key, value = b"key" * 100, b"value" * 100
    record = checked(value, key)
    assert record.key is key
    assert record.value is value
