from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaclient.errors import ProtocolError
from kafkaclient.wire.compression import CompressionType, compress
from kafkaclient.wire.record_reader import HEADER, batch_header, iter_records, verify_crc
from kafkaclient.wire.records import BatchBuilder


def sample(codec=CompressionType.NONE) -> bytes:
    builder = BatchBuilder(10_000)
    for i in range(5):
        builder.append(1000 + i, b"k%d" % i, b"v" * 50, [("h", b"x"), ("n", None)])
    builder.seal(codec)
    return bytes(builder.buffer())


def batch_of(body: bytes, count: int, attributes: int = 0) -> bytes:
    header = HEADER.pack(
        0, HEADER.size + len(body) - 12, -1, 2, 0, attributes, 0, 0, 0, -1, -1, -1, count
    )
    return header + body


def read_all(batch: bytes) -> None:
    batch_header(batch)
    verify_crc(batch)
    list(iter_records(batch))


@pytest.mark.parametrize("codec", list(CompressionType))
def test_a_batch_cut_anywhere_is_a_protocol_error(codec):
    batch = sample(codec)
    read_all(batch)
    for end in range(len(batch)):
        with pytest.raises(ProtocolError):
            read_all(batch[:end])


def test_bytes_after_the_batch_are_not_read():
    batch = sample()
    assert list(iter_records(batch + b"next")) == list(iter_records(batch))
    assert verify_crc(batch + b"next")


def test_a_changed_byte_fails_the_checksum():
    batch = sample()
    for position in (21, 30, 61, len(batch) - 1):
        damaged = bytearray(batch)
        damaged[position] ^= 1
        assert not verify_crc(damaged)


def test_older_formats_are_refused_by_name():
    batch = bytearray(sample())
    batch[16] = 1
    with pytest.raises(ProtocolError, match="format 1"):
        batch_header(batch)


@pytest.mark.parametrize("length", [-1, 0, 48, 2**31 - 1])
def test_a_wrong_length_is_refused(length):
    batch = bytearray(sample())
    struct.pack_into(">i", batch, 8, length)
    with pytest.raises(ProtocolError, match="batch says"):
        batch_header(batch)


@pytest.mark.parametrize(
    ("body", "count", "message"),
    [
        (b"", -1, "-1 records"),
        (b"", 1, "1 records in 0 bytes"),
        (bytes(70), 2**31 - 1, "records in 70 bytes"),
        (bytes(7), 1, "record of 0 bytes"),
        (b"\x0d" + bytes(9), 1, "record of -7 bytes"),
        (b"\x7e" + bytes(9), 1, "record of 63 bytes"),
        (b"\x0c\x00\x00\x00\x01\x01\x00extra", 1, "5 bytes after"),
        (b"\x0e\x00\x00\x00\x01\x01\x00\x00", 1, "fields end at byte 7"),
        (b"\x0c\x00\x00\x00\x01\x01\x01", 1, "-1 headers"),
        (b"\x0c\x00\x00\x00\x01\x01\x40", 1, "32 headers"),
        (b"\x0c\x00\x00\x00\x03\x01\x00", 1, "field of -2 bytes"),
        (b"\x0c\x00\x00\x00\x40\x01\x00", 1, "field of 32 bytes"),
        (b"\x10\x00\x00\x00\x01\x01\x02\x01\x01", 1, "without a key"),
        (b"\x12\x00\x00\x00\x01\x01\x02\x02\xff\x01", 1, "not UTF-8"),
        (b"\xff" * 20, 1, "varint without an end"),
    ],
)
def test_malformed_records_say_what_is_wrong(body, count, message):
    with pytest.raises(ProtocolError, match=message):
        list(iter_records(batch_of(body, count)))


def test_an_unknown_codec_is_a_protocol_error():
    with pytest.raises(ProtocolError, match="codec 7"):
        list(iter_records(batch_of(b"", 0, attributes=7)))


def test_a_small_body_cannot_claim_many_records():
    body = compress(CompressionType.GZIP, bytes(1000))
    with pytest.raises(ProtocolError, match="2147483647 records in 1000 bytes"):
        list(iter_records(batch_of(body, 2**31 - 1, attributes=CompressionType.GZIP)))


@given(body=st.binary(max_size=100), count=st.integers(-1, 20), attributes=st.integers(0, 7))
def test_random_bodies_are_read_or_refused(body, count, attributes):
    with contextlib.suppress(ProtocolError):
        read_all(batch_of(body, count, attributes))


@given(data=st.binary(max_size=150))
def test_random_bytes_are_refused(data):
    with pytest.raises(ProtocolError):
        read_all(data)


@given(
    position=st.integers(0, 200), value=st.integers(0, 255), codec=st.sampled_from(CompressionType)
)
def test_a_damaged_batch_is_read_or_refused(position, value, codec):
    batch = bytearray(sample(codec))
    batch[position % len(batch)] = value
    with contextlib.suppress(ProtocolError):
        read_all(batch)
