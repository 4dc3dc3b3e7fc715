"""What a caller may give as a record, and what is made of it."""

from __future__ import annotations

from typing import Any

import pytest

from kafkaclient.config import ProducerConfig
from kafkaclient.errors import InvalidRecordError
from kafkaclient.producer.batches.record import RawRecord, Record, checked_record

CONFIG = ProducerConfig.build(None, {"bootstrap_servers": "localhost:9092"})


def checked(value: Any = None, key: Any = None, headers: Any = ()) -> Record:
    return checked_record(CONFIG, lambda: 0.0, RawRecord("t", value, key, headers=headers))


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


@pytest.mark.parametrize(
    "headers",
    [
        (("a", b"1"), ("b", None)),
        [["a", b"1"], ["b", None]],
        {"a": b"1", "b": None},
        iter([("a", b"1"), ("b", None)]),
        zip("ab", [b"1", None], strict=True),
        (pair for pair in [("a", b"1"), ("b", None)]),
    ],
    ids=["tuple", "list", "mapping", "iterator", "zip", "generator"],
)
def test_headers_in_any_form(headers: Any) -> None:
    record = checked(headers=headers)
    assert record.headers == (("a", b"1"), ("b", None))
    assert record.upper_bound == checked(headers=record.headers).upper_bound


@pytest.mark.parametrize("headers", [None, (), [], {}])
def test_no_headers(headers: Any) -> None:
    assert checked(headers=headers).headers == ()


@pytest.mark.parametrize("headers", [5, "abc", ["c"], [("a",)], [("a", b"1", 2)], [None]])
def test_headers_that_are_no_pairs(headers: Any) -> None:
    sentence = r"topic 't': headers must be \(name, value\) pairs or a mapping: "
    with pytest.raises(InvalidRecordError, match=sentence):
        checked(headers=headers)


@pytest.mark.parametrize("headers", [[b"ab", b"cd"], [("a", 1)], [(1, b"a")]])
def test_headers_that_are_none(headers: Any) -> None:
    with pytest.raises(InvalidRecordError, match=r"header (key must be str|value must be bytes)"):
        checked(headers=headers)
