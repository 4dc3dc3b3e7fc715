"""Arrow's C interface, with pyarrow on the other side."""

from __future__ import annotations

import ctypes
import gc
import struct
import threading

import pytest

from kafkaclient.wire import arrow
from kafkaclient.wire.arrow import ArrowArray, ArrowField

pa = pytest.importorskip("pyarrow")

FIELD = ArrowField(
    "",
    "+s",
    False,
    (
        ArrowField("name", "z", True),
        ArrowField("number", "l"),
        ArrowField("list", "+l", False, (ArrowField("item", "u"),)),
    ),
)


def array() -> ArrowArray:
    offsets = bytearray(struct.pack("=4i", 0, 3, 3, 5))
    names = ArrowArray(3, 1, (bytearray(b"\x05"), offsets, bytearray(b"abcde")))
    numbers = ArrowArray(3, 0, (None, bytearray(struct.pack("=3q", 1, -2, 3))))
    words = ArrowArray(2, 0, (None, bytearray(struct.pack("=3i", 0, 1, 2)), bytearray(b"xy")))
    lists = ArrowArray(3, 0, (None, bytearray(struct.pack("=4i", 0, 0, 2, 2))), (words,))
    return ArrowArray(3, 0, (None,), (names, numbers, lists))


ROWS = [
    {"name": b"abc", "number": 1, "list": []},
    {"name": None, "number": -2, "list": ["x", "y"]},
    {"name": b"de", "number": 3, "list": []},
]


class Exported:
    def __init__(self, arrays):
        self.arrays = arrays

    def __arrow_c_array__(self, requested_schema=None):
        return arrow.schema_capsule(FIELD), arrow.array_capsule(self.arrays[0])

    def __arrow_c_stream__(self, requested_schema=None):
        return arrow.stream_capsule(FIELD, self.arrays)


@pytest.fixture(autouse=True)
def nothing_left():
    gc.collect()
    before = len(arrow._alive), len(arrow._capsules)
    yield
    gc.collect()
    assert (len(arrow._alive), len(arrow._capsules)) == before


def test_an_array():
    batch = pa.record_batch(Exported([array()]))
    batch.validate(full=True)
    assert batch.to_pylist() == ROWS
    assert [field.nullable for field in batch.schema] == [True, False, False]


def test_no_copy_is_made():
    numbers = bytearray(struct.pack("=3q", 1, 2, 3))
    given = ArrowArray(3, 0, (None,), (ArrowArray(3, 0, (None, numbers)),))
    field = ArrowField("", "+s", False, (ArrowField("n", "l"),))

    class One:
        def __arrow_c_array__(self, requested_schema=None):
            return arrow.schema_capsule(field), arrow.array_capsule(given)

    batch = pa.record_batch(One())
    struct.pack_into("=q", numbers, 8, 99)
    assert batch.column("n").to_pylist() == [1, 99, 3]
    with pytest.raises(BufferError):
        numbers.append(0)  # it must stay where it is
    del batch
    gc.collect()
    numbers.append(0)


def test_a_stream():
    table = pa.table(Exported([array(), array()]))
    table.validate(full=True)
    assert table.to_pylist() == ROWS + ROWS
    assert pa.RecordBatchReader.from_stream(Exported([])).read_all().num_rows == 0


def test_a_column_outlives_its_batch():
    batch = pa.record_batch(Exported([array()]))
    column = batch.column("name")
    del batch
    gc.collect()
    assert column.to_pylist() == [b"abc", None, b"de"]


def test_nothing():
    empty = bytearray(struct.pack("=i", 0))
    words = ArrowArray(0, 0, (None, empty, bytearray()))
    columns = (
        ArrowArray(0, 0, (None, empty, bytearray())),
        ArrowArray(0, 0, (None, bytearray())),
        ArrowArray(0, 0, (None, empty), (words,)),
    )
    batch = pa.record_batch(Exported([ArrowArray(0, 0, (None,), columns)]))
    batch.validate(full=True)
    assert batch.num_rows == 0


def test_capsules_that_nobody_takes_are_released():
    exported = Exported([array()])
    exported.__arrow_c_array__()
    exported.__arrow_c_stream__()


def test_a_child_moved_away_is_released_by_itself():
    """The C data interface allows a consumer to keep one child and release its parent."""
    made = arrow._array(array())
    child = arrow._Array.from_address(made.children[1])
    taken = arrow._Array()
    ctypes.memmove(ctypes.addressof(taken), ctypes.addressof(child), ctypes.sizeof(child))
    child.release = None
    arrow._release_array(ctypes.addressof(made))
    assert not made.release
    arrow._release_array(ctypes.addressof(made))  # once is enough
    assert ctypes.cast(taken.buffers[1], ctypes.POINTER(ctypes.c_int64))[2] == 3
    arrow._release_array(ctypes.addressof(taken))


def test_released_on_another_thread():
    held = [pa.record_batch(Exported([array()]))]
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
