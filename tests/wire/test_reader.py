from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaclient.errors import ProtocolError
from kafkaclient.wire.reader import FieldReader


def reader(data: bytes, *, flexible: bool = False) -> FieldReader:
    return FieldReader(data, flexible=flexible)


def test_integers_are_big_endian_and_signed():
    r = reader(b"\xff\x01\x02\xff\xff\xff\xfe" + (2**62).to_bytes(8, "big"))
    assert (r.int8(), r.int16(), r.int32(), r.int64()) == (-1, 258, -2, 2**62)
    assert r.remaining == 0


@pytest.mark.parametrize("size", range(8))
def test_integers_stop_at_the_end(size):
    reads = {1: FieldReader.int8, 2: FieldReader.int16, 4: FieldReader.int32, 8: FieldReader.int64}
    for needed, read in reads.items():
        if needed > size:
            with pytest.raises(ProtocolError, match=f"{needed} bytes wanted at byte 0 of {size}"):
                read(reader(bytes(size)))


@pytest.mark.parametrize(
    ("data", "value"),
    [(b"\x00", 0), (b"\x7f", 127), (b"\x80\x01", 128), (b"\xff\xff\xff\xff\x0f", 2**32 - 1)],
)
def test_uvarint(data, value):
    assert reader(data).uvarint() == value


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff\xff\xff\xff"])
def test_uvarint_cut_short(data):
    with pytest.raises(ProtocolError, match="ends early"):
        reader(data).uvarint()


def test_uvarint_without_end():
    with pytest.raises(ProtocolError, match="longer than 5 bytes"):
        reader(b"\xff" * 1000).uvarint()


def test_strings():
    assert reader(b"\x00\x03\xc3\xbcx").string() == "üx"
    assert reader(b"\x04\xc3\xbcx", flexible=True).string() == "üx"
    assert reader(b"\xff\xff").nullable_string() is None
    assert reader(b"\x00", flexible=True).nullable_string() is None
    assert reader(b"\x00\x00").string() == ""
    assert reader(b"\x01", flexible=True).string() == ""


@pytest.mark.parametrize(
    ("data", "flexible", "message"),
    [
        (b"\xff\xff", False, "null"),
        (b"\x00", True, "null"),
        (b"\xff\xfe", False, "-2 bytes"),
        (b"\x00\x05abc", False, "5 bytes"),
        (b"\x06abc", True, "5 bytes"),
        (b"\x00\x01\xff", False, "not UTF-8"),
    ],
)
def test_bad_strings(data, flexible, message):
    with pytest.raises(ProtocolError, match=message):
        reader(data, flexible=flexible).string()


def test_arrays():
    assert reader(b"\x00\x00\x00\x02" + bytes(8)).array(4) == range(2)
    assert reader(b"\x03" + bytes(8), flexible=True).array(4) == range(2)
    assert reader(b"\xff\xff\xff\xff").array(4) == range(0)
    assert reader(b"\x00", flexible=True).array(4) == range(0)


@pytest.mark.parametrize(
    ("data", "flexible"),
    [
        (b"\x7f\xff\xff\xff" + bytes(100), False),
        (b"\xff\xff\xff\xfe", False),
        (b"\xff\xff\xff\xff\x0f" + bytes(100), True),
    ],
)
def test_an_array_cannot_be_larger_than_its_message(data, flexible):
    with pytest.raises(ProtocolError, match="array of"):
        reader(data, flexible=flexible).array(4)


def test_tagged_fields():
    r = reader(b"\x02\x00\x02ab\x81\x01\x00rest", flexible=True)
    assert r.tagged_fields() == {0: b"ab", 129: b""}
    assert bytes(r.data[r.position :]) == b"rest"
    assert reader(b"\x05").tagged_fields() == {}


@pytest.mark.parametrize("data", [b"\x01", b"\x01\x00\x05ab", b"\xff\xff\xff\xff\x0f" + bytes(50)])
def test_bad_tagged_fields(data):
    with pytest.raises(ProtocolError):
        reader(data, flexible=True).tagged_fields()


@given(data=st.binary(max_size=64), flexible=st.booleans(), steps=st.lists(st.integers(0, 7)))
def test_any_reads_of_any_bytes_stay_inside_or_raise_protocol_error(data, flexible, steps):
    r = FieldReader(data, flexible=flexible)
    methods = [
        r.int8,
        r.int16,
        r.int32,
        r.int64,
        r.uvarint,
        r.nullable_string,
        lambda: r.array(1),
        r.tagged_fields,
    ]
    for step in steps:
        try:
            methods[step]()
        except ProtocolError:
            return
        assert 0 <= r.position <= len(data)
