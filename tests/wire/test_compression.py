from __future__ import annotations

import contextlib
import gzip
import json
import struct
import sys
import threading
import time
import tracemalloc
from random import Random

import cramjam
import lz4.frame
import pytest
from aiokafka.codec import snappy_decode
from hypothesis import given
from hypothesis import strategies as st
from kafka.codec import gzip_decode, gzip_encode, lz4_decode

from kafkaclient.errors import ProtocolError
from kafkaclient.wire.compression import CompressionType, compress, decompress, quickly_compressed

MB = 1024 * 1024
compressing = pytest.mark.parametrize(
    "codec", [c for c in CompressionType if c is not CompressionType.NONE]
)


@pytest.mark.parametrize("codec", list(CompressionType))
@given(data=st.binary(max_size=2000), repeat=st.integers(1, 100))
def test_round_trip(codec, data, repeat):
    plain = data * repeat
    assert decompress(codec, compress(codec, memoryview(plain))) == plain


def test_codecs_have_the_numbers_of_the_batch_attributes():
    assert [c.name for c in CompressionType] == ["NONE", "GZIP", "SNAPPY", "LZ4", "ZSTD"]
    assert list(CompressionType) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("codec", "levels"),
    [
        (CompressionType.GZIP, (-1, 1, 9)),
        (CompressionType.LZ4, (1, 9, 12, 17)),
        (CompressionType.ZSTD, (-131072, 1, 3, 22)),
    ],
)
def test_all_levels_of_java_are_accepted(codec, levels):
    plain = b"some text, many times over. " * 100
    for level in levels:
        assert decompress(codec, compress(codec, plain, level)) == plain


def test_default_levels_are_javas():
    plain = b"".join(b"%d" % (i * i) for i in range(5000))
    assert compress(CompressionType.GZIP, plain) == compress(CompressionType.GZIP, plain, -1)
    assert compress(CompressionType.ZSTD, plain) == compress(CompressionType.ZSTD, plain, 3)
    assert compress(CompressionType.LZ4, plain) == compress(CompressionType.LZ4, plain, 9)


@pytest.fixture(scope="module")
def rows():
    rng = Random(0)
    return b"".join(
        json.dumps(
            {"id": n, "price": rng.randrange(10_000), "name": rng.choice("abc") * 5}
        ).encode()
        for n in range(5000)
    )


@pytest.mark.parametrize(
    ("codec", "levels"),
    [
        (CompressionType.GZIP, (1, 6, 9)),
        (CompressionType.LZ4, (9, 3, 12)),  # 9 is the fast compressor, as in Java
        (CompressionType.ZSTD, (-50, -5, 3, 9, 19)),
    ],
)
def test_levels_reach_the_codecs(codec, levels, rows):
    sizes = [len(compress(codec, rows, level)) for level in levels]
    assert sizes == sorted(set(sizes), reverse=True), "more work, fewer bytes"


def test_lz4_levels_out_of_the_librarys_range_are_its_nearest(rows):
    """Java's go from 1 to 17; so does lz4-java, which leaves the rest to its library, too."""
    assert compress(CompressionType.LZ4, rows, 1) == compress(CompressionType.LZ4, rows, 3)
    assert compress(CompressionType.LZ4, rows, 17) == compress(CompressionType.LZ4, rows, 12)


@compressing
def test_other_libraries_read_every_level(codec, rows):
    readers = {
        CompressionType.GZIP: (gzip.decompress, (1, 9)),
        CompressionType.SNAPPY: (snappy_decode, (None,)),
        CompressionType.LZ4: (lz4_decode, (1, 9, 17)),
        CompressionType.ZSTD: (lambda data: bytes(cramjam.zstd.decompress(data)), (-7, 22)),
    }
    read, levels = readers[codec]
    for level in (None, *levels):
        assert read(compress(codec, rows, level)) == rows


def test_how_much_is_compressed_quickly():
    """More at lower levels; what is slow at any size is not called quick."""
    assert quickly_compressed(CompressionType.NONE) > 100 * MB
    assert quickly_compressed(CompressionType.SNAPPY) == 131_072
    for codec, levels in (
        (CompressionType.GZIP, (1, 6, 9)),
        (CompressionType.LZ4, (9, 3, 12)),
        (CompressionType.ZSTD, (1, 5, 12, 22)),
    ):
        sizes = [quickly_compressed(codec, level) for level in levels]
        assert sizes == sorted(set(sizes), reverse=True)
        assert sizes[-1] > 0
    for codec, default in (
        (CompressionType.GZIP, -1),
        (CompressionType.GZIP, 6),
        (CompressionType.LZ4, 9),
        (CompressionType.ZSTD, 3),
    ):
        assert quickly_compressed(codec) == quickly_compressed(codec, default)


@compressing
def test_other_threads_run_meanwhile(codec, rows):
    """Compressing aside helps only if the codec gives the interpreter's lock away."""
    plain = rows * (100 if codec is CompressionType.GZIP else 400)

    def overlaps():
        begun, ended = threading.Event(), threading.Event()

        def work():
            begun.set()
            compress(codec, plain)
            ended.set()

        thread = threading.Thread(target=work)
        thread.start()
        begun.wait()
        before_the_end = not ended.is_set()
        time.sleep(0)
        before_the_end &= not ended.is_set()
        thread.join()
        return before_the_end

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)  # nobody is made to give it away
    try:
        # On a busy machine this thread may be woken too late to see it.
        assert any(overlaps() for _ in range(10))
    finally:
        sys.setswitchinterval(interval)


def test_gzip_agrees_with_the_reference():
    plain = b"flights" * 1000
    assert gzip_decode(compress(CompressionType.GZIP, plain)) == plain
    assert decompress(CompressionType.GZIP, gzip_encode(plain)) == plain


def test_gzip_output_does_not_depend_on_the_time():
    assert compress(CompressionType.GZIP, b"x")[4:8] == bytes(4)


def test_lz4_blocks_are_independent_as_javas_reader_demands():
    # Flag byte of the frame: bit 5 says that blocks are independent.
    assert compress(CompressionType.LZ4, b"x" * 1000)[4] & 0x20
    assert decompress(CompressionType.LZ4, lz4.frame.compress(b"x" * 1000)) == b"x" * 1000


def test_lz4_blocks_are_as_large_as_they_need_to_be():
    """Java's reader gets itself a buffer of the size that the frame announces (bits 4 to 6)."""
    for size, announced in ((1000, 4), (65_536, 4), (65_537, 5), (MB, 5)):
        assert compress(CompressionType.LZ4, bytes(size))[5] >> 4 == announced


def test_snappy_has_the_framing_of_snappy_java():
    plain = bytes(range(256)) * 4 * 2500  # more than two blocks of 1 MB
    stream = compress(CompressionType.SNAPPY, plain)
    assert stream[:16] == b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    position, blocks = 16, []
    while position < len(stream):
        (size,) = struct.unpack_from(">i", stream, position)
        block = bytes(cramjam.snappy.decompress_raw(stream[position + 4 : position + 4 + size]))
        blocks.append(block)
        position += 4 + size
    assert [len(block) for block in blocks] == [MB, MB, len(plain) - 2 * MB]
    assert b"".join(blocks) == plain


def test_snappy_without_framing_is_read_as_well():
    assert (
        decompress(CompressionType.SNAPPY, bytes(cramjam.snappy.compress_raw(b"abc" * 99)))
        == b"abc" * 99
    )


def test_zstd_frames_without_their_size_are_read():
    # As Java streams them. One byte of the frame header tells that the size is left out.
    compressor = cramjam.zstd.Compressor()
    compressor.compress(b"abc" * 100_000)
    assert decompress(CompressionType.ZSTD, bytes(compressor.finish())) == b"abc" * 100_000


@compressing
def test_cut_data_is_a_protocol_error(codec):
    data = compress(codec, b"some text " * 20)
    for end in range(len(data)):
        if codec is CompressionType.SNAPPY and end == 16:
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


def test_a_damaged_zstd_frame_takes_no_more_memory_than_it_could_fill():
    """A few bytes made this process touch 256 MB before they were refused."""
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            decompress(
                CompressionType.ZSTD,
                bytes.fromhex("28b52ffd 00 58 6d0000 10 00 ffffffffffffffffffff"),
            )
        assert tracemalloc.get_traced_memory()[1] < MB
    finally:
        tracemalloc.stop()


def test_a_snappy_block_that_claims_more_than_it_could_fill_is_refused_by_its_claim():
    with pytest.raises(ProtocolError, match="6 bytes of snappy cannot become 33554431"):
        decompress(CompressionType.SNAPPY, b"\xff\xff\xff\x0f" + b"\x00a")


def test_zstd_frames_in_a_row_and_frames_to_skip():
    first, second = (
        compress(CompressionType.ZSTD, b"a" * 300_000),
        compress(CompressionType.ZSTD, b"b" * 10),
    )
    skipped = bytes.fromhex("502a4d18 03000000") + b"xyz"
    assert decompress(CompressionType.ZSTD, first + skipped + second) == b"a" * 300_000 + b"b" * 10
