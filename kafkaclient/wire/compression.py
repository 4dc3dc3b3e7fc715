"""The compression codecs of record batches, with the frames of Java's clients, and CRC-32C.

The output of :func:`decompress` is limited: a peer's few kilobytes must not become gigabytes.
"""

from __future__ import annotations

import struct
import zlib
from enum import IntEnum
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import TYPE_CHECKING, Any

from kafkaclient.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.types import Buffer


# --- CRC-32C, the checksum of record batches ------------------------------------------------------
# ``import crc32c`` looks up the package's version, and reads the metadata of all installed
# packages for that: it takes longer than most of this package. So its extension module is loaded
# alone, where it is found.


def _load() -> Any:
    package = PathFinder.find_spec("crc32c")
    places = None if package is None else package.submodule_search_locations
    spec = None if places is None else PathFinder.find_spec("crc32c._crc32c", places)
    if spec is None or spec.loader is None:
        return import_module("crc32c").crc32c
    extension = module_from_spec(spec)
    spec.loader.exec_module(extension)
    return extension.crc32c


crc32c: Callable[[Buffer], int] = _load()


# --- The compression codecs of record batches -----------------------------------------------------

try:
    import cramjam
    import lz4.frame
except ImportError as error:
    if "subinterpreter" not in str(error):
        raise
    raise ImportError(
        "kafkaclient cannot be imported in this interpreter: its dependencies cramjam and lz4 "
        f"support one interpreter of a process only ({error}). Use kafkaclient in the main "
        "interpreter, or in processes of their own"
    ) from error


MAX_DECOMPRESSED = 256 * 1024 * 1024
"""The default limit of :func:`decompress`, in bytes."""

_GZIP_WBITS = 31
_GZIP_DEFAULT_LEVEL = -1
_GZIP_USUAL_LEVEL = 6  # zlib's meaning of -1
_ZSTD_DEFAULT_LEVEL = 3
_ZSTD_START = struct.Struct("<IB")
_ZSTD_MAGIC, _ZSTD_SKIPPABLE = 0xFD2FB528, 0x184D2A50
_ZSTD_RUN, _ZSTD_COMPRESSED = 1, 2
_ZSTD_LARGEST_BLOCK = 128 * 1024
# KIP-390: Java's default "level" 9 is its fast compressor; other levels are the slow compressor.
_LZ4_FAST_LEVEL = 9
_LZ4_MIN_HIGH_LEVEL, _LZ4_MAX_HIGH_LEVEL = 3, 16

# snappy-java's stream: magic, version 1, oldest compatible version 1, then blocks, each behind its
# compressed size. Java writes blocks of 32 KB and reads blocks of any size. Large blocks are faster
# because a thread waits for the interpreter lock after each, for milliseconds beside a busy loop.
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK = 1024 * 1024
_SNAPPY_MOST = 22
"""The most bytes from one byte of a snappy block, whose densest element makes 64 out of 3."""
_INT32 = struct.Struct(">i")
_UINT32_LE = struct.Struct("<I")


class CompressionType(IntEnum):
    """``compression.type``, numbered as in a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


# CompressionType -> (highest level, bytes of JSON that a core of 2023 compresses in 0.2 to 0.5 ms).
_QUICK: dict[CompressionType, tuple[tuple[int, int], ...]] = {
    CompressionType.GZIP: ((5, 32_768), (7, 16_384), (9, 4_096)),
    CompressionType.SNAPPY: ((0, 131_072),),
    CompressionType.LZ4: ((0, 131_072), (5, 32_768), (17, 4_096)),
    CompressionType.ZSTD: ((3, 131_072), (5, 32_768), (12, 4_096), (22, 1_024)),
}


def quickly_compressed(codec: int, level: int | None = None) -> int:
    """How many bytes :func:`compress` compresses within about half a millisecond."""
    steps = _QUICK.get(CompressionType(codec), ())
    rank = _rank(CompressionType(codec), level)
    return next((nbytes for up_to, nbytes in steps if rank <= up_to), MAX_DECOMPRESSED)


def _rank(codec: CompressionType, level: int | None) -> int:
    """The level as a number that grows with the work."""
    match codec:
        case CompressionType.GZIP if level is None or level == _GZIP_DEFAULT_LEVEL:
            return _GZIP_USUAL_LEVEL
        case CompressionType.LZ4:
            return _lz4_level(level)
        case CompressionType.ZSTD if level is None:
            return _ZSTD_DEFAULT_LEVEL
    return level or 0


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """The compressed data. ``level`` None is the codec's default; NONE and SNAPPY have no level.

    Raises ValueError for an unknown codec.
    """
    match CompressionType(codec):
        case CompressionType.NONE:
            return bytes(data)
        case CompressionType.GZIP:
            return zlib.compress(data, _GZIP_DEFAULT_LEVEL if level is None else level, _GZIP_WBITS)
        case CompressionType.SNAPPY:
            return _compress_xerial(memoryview(data))
        case CompressionType.LZ4:
            return _compress_lz4(data, level)
        case CompressionType.ZSTD:
            chosen = _ZSTD_DEFAULT_LEVEL if level is None else level
            return bytes(cramjam.zstd.compress(data, level=chosen))


def decompress(codec: int, data: Buffer, limit: int = MAX_DECOMPRESSED) -> bytes:
    """The decompressed data, at most ``limit`` bytes.

    Raises :class:`~kafkaclient.errors.ProtocolError` for data that is malformed, cut short or
    larger than the limit, and for an unknown codec.
    """
    try:
        match CompressionType(codec):
            case CompressionType.NONE:
                return bytes(data)
            case CompressionType.GZIP:
                return _decompress_gzip(data, limit)
            case CompressionType.SNAPPY:
                return _decompress_snappy(memoryview(data), limit)
            case CompressionType.LZ4:
                return _decompress_lz4(data, limit)
            case CompressionType.ZSTD:
                return _decompress_zstd(data, limit)
    except (zlib.error, cramjam.DecompressionError, RuntimeError, ValueError, EOFError) as error:
        raise ProtocolError(
            f"records do not decompress (codec {codec}, {len(data)} bytes): {error}"
        ) from error


def _too_large(limit: int) -> ProtocolError:
    return ProtocolError(f"records decompress to more than {limit} bytes")


def _lz4_level(level: int | None) -> int:
    """The library's level for a level of Java's client."""
    if level is None or level == _LZ4_FAST_LEVEL:
        return 0
    return min(max(level, _LZ4_MIN_HIGH_LEVEL), _LZ4_MAX_HIGH_LEVEL)


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    # Java cannot read linked blocks. It writes blocks of 64 KB; with 256 KB large batches become a
    # sixth smaller in the same time.
    compressed: bytes = lz4.frame.compress(
        data,
        compression_level=_lz4_level(level),
        block_size=lz4.frame.BLOCKSIZE_MAX256KB,
        block_linked=False,
        store_size=False,
    )
    return compressed


def _compress_xerial(data: memoryview) -> bytes:
    parts = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK]))
        parts += (_INT32.pack(len(block)), block)
    return b"".join(parts)


def _decompress_gzip(data: Buffer, limit: int) -> bytes:
    stream = zlib.decompressobj(_GZIP_WBITS)
    plain = stream.decompress(data, limit + 1)
    if len(plain) > limit:
        raise _too_large(limit)
    if not stream.eof:
        raise EOFError("the gzip stream is cut short")
    return plain


def _decompress_lz4(data: Buffer, limit: int) -> bytes:
    stream = lz4.frame.LZ4FrameDecompressor()
    plain: bytes = stream.decompress(data, max_length=limit + 1)
    if len(plain) > limit:
        raise _too_large(limit)
    if not stream.eof:
        raise EOFError("the lz4 frame is cut short")
    return plain


def _decompress_snappy(data: memoryview, limit: int) -> bytes:
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        # librdkafka writes one bare block.
        return _decompress_snappy_block(data, limit)
    parts = []
    position = len(_XERIAL_HEADER)
    if len(data) < position:
        raise EOFError("the snappy stream's header is cut short")
    while position < len(data):
        if len(data) - position < _INT32.size:
            raise EOFError("the snappy stream is cut short")
        size = _INT32.unpack_from(data, position)[0]
        position += _INT32.size
        if not 0 <= size <= len(data) - position:
            raise EOFError(f"a snappy block of {size} bytes where {len(data) - position} are left")
        block = _decompress_snappy_block(data[position : position + size], limit)
        limit -= len(block)
        parts.append(block)
        position += size
    return b"".join(parts)


def _decompress_snappy_block(block: memoryview, limit: int) -> bytes:
    size: int = cramjam.snappy.decompress_raw_len(block)
    if size > limit:
        raise _too_large(limit)
    if size > _SNAPPY_MOST * len(block):
        raise ValueError(f"{len(block)} bytes of snappy cannot become {size}")
    return bytes(cramjam.snappy.decompress_raw(block))


def _decompress_zstd(data: Buffer, limit: int) -> bytes:
    # A streamed frame (as Java writes it) does not contain its size, and the library alone would
    # use memory without limit. So it gets a buffer of the size that the frame's blocks can have.
    plain = bytearray(min(limit, _zstd_bound(memoryview(data))))
    size: int = cramjam.zstd.decompress_into(data, plain)
    return bytes(memoryview(plain)[:size])


def _zstd_bound(data: memoryview) -> int:
    """The largest size of the decompressed frames, from the headers of their blocks (RFC 8878)."""
    bound = position = 0
    while position < len(data):
        magic, descriptor = _ZSTD_START.unpack_from(_part(data, position, _ZSTD_START.size))
        if magic & 0xFFFFFFF0 == _ZSTD_SKIPPABLE:
            (size,) = _UINT32_LE.unpack_from(_part(data, position + 4, 4))
            position += 8 + size
            continue
        if magic != _ZSTD_MAGIC:
            raise ValueError(f"no zstd frame at byte {position}")
        single_segment = descriptor >> 5 & 1
        content_size = (single_segment, 2, 4, 8)[descriptor >> 6]
        dictionary_id = (0, 1, 2, 4)[descriptor & 3]
        position += _ZSTD_START.size + (1 - single_segment) + dictionary_id + content_size
        last = False
        while not last:
            header = int.from_bytes(_part(data, position, 3), "little")
            last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
            bound += _ZSTD_LARGEST_BLOCK if kind == _ZSTD_COMPRESSED else size
            position += 3 + (1 if kind == _ZSTD_RUN else size)
        position += 4 * (descriptor >> 2 & 1)  # checksum
    return bound


def _part(data: memoryview, start: int, size: int) -> memoryview:
    if start + size > len(data):
        raise EOFError("the zstd frame is cut short")
    return data[start : start + size]
