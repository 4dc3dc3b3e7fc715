"""Arrow data that is not what it says: refused, and never followed out of its buffers."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest

from kafkaclient.errors import InvalidRecordError
from kafkaclient.producer.producer import Producer
from kafkaclient.testing.clock import run_virtual
from tests.producer.support import one_topic

LISTS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


async def refused(data: Any) -> InvalidRecordError:
    fake = one_topic(brokers=1)
    async with Producer(fake.bootstrap, dialer=fake) as producer:
        with pytest.raises(InvalidRecordError) as caught:
            await producer.send_arrow("t", data)
        assert (await caught.value.delivery).records == 0
    assert [fake.log("t", p) for p in range(3)] == [[]] * 3
    return caught.value


def made(kind: Any, rows: int, good: bytes, bad: bytes, *others: Any, children: Any = None) -> Any:
    """An array whose offsets or views have turned bad since Arrow looked at them."""
    memory = bytearray(good)
    buffers = [None, pa.py_buffer(memory), *others]
    array = pa.Array.from_buffers(kind, rows, buffers, children=children)
    memory[:] = bad
    return array


def of_offsets(kind: Any, code: str, *offsets: int) -> Any:
    bad = struct.pack(f"<{len(offsets)}{code}", *offsets)
    return made(kind, len(offsets) - 1, bytes(len(bad)), bad, pa.py_buffer(b"abcdef"))


def view(size: int, *parts: int) -> Any:
    bad = struct.pack("<i4sii", size, b"abcd", *parts)
    return made(pa.binary_view(), 1, bytes(16), bad, pa.py_buffer(bytes(20)))


def malformed_views() -> list[Any]:
    try:
        return [
            view(-1, 0, 0),
            view(13, 1, 0),
            view(13, -1, 0),
            view(13, 0, 8),
            view(13, 0, -1),
            view(2**31 - 1, 0, 2**31 - 1),
        ]
    except ValueError:  # pyarrow 18 makes no views of buffers
        return []


def in_lists(*offsets: int) -> Any:
    entries = pa.array([{"key": "a", "value": b"b"}] * 2, LISTS.value_type)
    bad = struct.pack(f"<{len(offsets)}i", *offsets)
    return made(LISTS, len(offsets) - 1, bytes(len(bad)), bad, children=[entries])


@pytest.mark.parametrize(
    "array",
    [
        of_offsets(pa.binary(), "i", 0, 3, 2, 6),
        of_offsets(pa.binary(), "i", 0, 1000, 2, 6),
        of_offsets(pa.binary(), "i", 0, -5, 2, 6),
        of_offsets(pa.large_binary(), "q", 0, 2**62, 2, 6),
        of_offsets(pa.large_binary(), "q", 0, -(2**63), 2**62, 6),
        *malformed_views(),
    ],
)
def test_malformed_columns_are_refused(array: Any) -> None:
    run_virtual(refused(pa.record_batch({"value": array})))


@pytest.mark.parametrize("offsets", [(0, 3, 2, 2), (0, -1, 1, 2), (0, 1000, 1, 2), (0, 0, 50, 2)])
def test_malformed_lists_are_refused(offsets: Any) -> None:
    run_virtual(refused(pa.record_batch({"value": [b"v"] * 3, "headers": in_lists(*offsets)})))


def test_names_that_are_no_text() -> None:
    names = pa.array([b"\xff"]).view(pa.string())
    entries = pa.StructArray.from_arrays([names, pa.array([b"v"])], ["key", "value"])
    lists = pa.ListArray.from_arrays([0, 1], entries)
    error = run_virtual(refused(pa.record_batch({"value": [b"v"], "headers": lists})))
    assert "UTF8" in str(error)
