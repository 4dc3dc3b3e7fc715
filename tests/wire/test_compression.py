from __future__ import annotations

import contextlib
import struct
import tracemalloc

import cramjam
import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.codec import gzip_decode, gzip_encode

from kafkaclient.errors import ProtocolError
from kafkaclient.wire.compression import Codec, compress, decompress

MB = 1024 * 1024
compressing = pytest.mark.parametrize("codec", [c for c in Codec if c is not Codec.NONE])


@pytest.mark.parametrize("codec", list(Codec))
@given(data=st.binary(max_size=2000), repeat=st.integers(1, 100))
def test_round_trip(codec, data, repeat):
    plain = data * repeat
    assert decompress(codec, compress(codec, memoryview(plain))) == plain


def test_codecs_have_the_numbers_of_the_batch_attributes():
    assert [c.name for c in Codec] == ["NONE", "GZIP", "SNAPPY", "LZ4", "ZSTD"]
    assert list(Codec) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("codec", "levels"),
    [(Codec.GZIP, (-1, 1, 9)), (Codec.LZ4, (1, 9, 12, 17)), (Codec.ZSTD, (-131072, 1, 3, 22))],
)
def test_all_levels_of_java_are_accepted(codec, levels):
    plain = b"some text, many times over. " * 100
    for level in levels:
        assert decompress(codec, compress(codec, plain, level)) == plain


def test_default_levels_are_javas():
    plain = b"".join(b"%d" % (i * i) for i in range(5000))
    assert compress(Codec.GZIP, plain) == compress(Codec.GZIP, plain, -1)
    assert compress(Codec.ZSTD, plain) == compress(Codec.ZSTD, plain, 3)
    assert compress(Codec.LZ4, plain) == compress(Codec.LZ4, plain, 9)


def test_gzip_agrees_with_the_reference():
    plain = b"flights" * 1000
    assert gzip_decode(compress(Codec.GZIP, plain)) == plain
    assert decompress(Codec.GZIP, gzip_encode(plain)) == plain


def test_gzip_output_does_not_depend_on_the_time():
    assert compress(Codec.GZIP, b"x")[4:8] == bytes(4)


def test_lz4_blocks_are_independent_as_javas_reader_demands():
    # Flag byte of the frame: bit 5 says that blocks are independent.
    assert compress(Codec.LZ4, b"x" * 1000)[4] & 0x20
    assert decompress(Codec.LZ4, lz4.frame.compress(b"x" * 1000)) == b"x" * 1000


def test_snappy_has_the_framing_of_snappy_java():
    plain = bytes(range(256)) * 300  # more than two blocks of 32 KB
    stream = compress(Codec.SNAPPY, plain)
    assert stream[:16] == b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    position, blocks = 16, []
    while position < len(stream):
        (size,) = struct.unpack_from(">i", stream, position)
        block = bytes(cramjam.snappy.decompress_raw(stream[position + 4 : position + 4 + size]))
        blocks.append(block)
        position += 4 + size
    assert [len(block) for block in blocks] == [32768, 32768, 11264]
    assert b"".join(blocks) == plain


def test_snappy_without_framing_is_read_as_well():
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(b"abc" * 99))) == b"abc" * 99


def test_zstd_frames_without_their_size_are_read():
    # As Java streams them. One byte of the frame header tells that the size is left out.
    compressor = cramjam.zstd.Compressor()
    compressor.compress(b"abc" * 100_000)
    assert decompress(Codec.ZSTD, bytes(compressor.finish())) == b"abc" * 100_000


@compressing
def test_cut_data_is_a_protocol_error(codec):
    data = compress(codec, b"some text " * 20)
    for end in range(len(data)):
        if codec is Codec.SNAPPY and end == 16:
            continue  # the header alone is a stream of no blocks
        with pytest.raises(ProtocolError, match="do not decompress"):
            decompress(codec, data[:end])


@compressing
def test_the_limit_is_exact(codec):
    data = compress(codec, b"x" * 100_000)
    assert len(decompress(codec, data, limit=100_000)) == 100_000
    with pytest.raises(ProtocolError):
        decompress(codec, data, limit=99_999)


@compressing
def test_a_bomb_does_not_fill_the_memory(codec):
    bomb = compress(codec, bytes(64 * MB))
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            decompress(codec, bomb, limit=MB)
        assert tracemalloc.get_traced_memory()[1] < 8 * MB
    finally:
        tracemalloc.stop()


@compressing
@given(data=st.binary(max_size=200))
def test_random_bytes_are_read_or_refused(codec, data):
    with contextlib.suppress(ProtocolError):
        assert len(decompress(codec, data, limit=MB)) <= MB


def test_an_unknown_codec():
    with pytest.raises(ValueError, match="5"):
        compress(5, b"")
    with pytest.raises(ProtocolError, match="codec 5"):
        decompress(5, b"")
