"""What ``kafkaclient produce`` reads: lines, JSON lines, or values behind their lengths."""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, TypeAlias

from kafkaclient.errors import InvalidRecordError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

Split: TypeAlias = "Callable[[bytes, bool], tuple[list[bytes | None], bytes]]"
"""(what was read, whether it is the last) -> its whole records, and what is left."""

_BLOCK = 1 << 20
_LENGTH = 4
_NULL = 0xFFFFFFFF


def delimited(delimiter: bytes) -> Split:
    """Records that end with the delimiter; the last one may lack it."""

    def split(data: bytes, is_last: bool) -> tuple[list[bytes | None], bytes]:
        *records, rest = data.split(delimiter)
        if is_last and rest:
            return [*records, rest], b""
        return list(records), rest

    return split


def length_prefixed(data: bytes, is_last: bool) -> tuple[list[bytes | None], bytes]:
    """Records behind their length in four bytes, -1 for null, as ``consume --format %R%s`` prints
    them. Raises InvalidRecordError if the last one is cut off."""
    records: list[bytes | None] = []
    at = 0
    while len(data) - at >= _LENGTH:
        length = int.from_bytes(data[at : at + _LENGTH], "big")
        end = at + _LENGTH + (0 if length == _NULL else length)
        if end > len(data):
            break
        records.append(None if length == _NULL else data[at + _LENGTH : end])
        at = end
    if is_last and at < len(data):
        raise InvalidRecordError(
            f"--length-prefixed: the input ends within a record: {len(data) - at} bytes are left"
        )
    return records, data[at:]


async def read_records(descriptor: int, split: Split) -> AsyncIterator[list[bytes | None]]:
    """The records as they come, many at a time."""
    rest = b""
    async for data in _blocks(descriptor):
        # A record that is longer than a block is put together once: data holds all of it so far.
        records, rest = split(rest + data if rest else data, False)
        if records:
            yield records
    records, _ = split(rest, True)
    if records:
        yield records


async def _blocks(descriptor: int) -> AsyncIterator[bytes]:
    """What can be read, one block ahead. A daemon thread reads: Ctrl-C ends the command while the
    thread waits for input."""
    loop = asyncio.get_running_loop()
    blocks: asyncio.Queue[bytes | OSError] = asyncio.Queue()
    room = threading.Semaphore(2)
    with suppress(ImportError, AttributeError, OSError):  # a pipe, on Linux: 64 KiB otherwise
        fcntl = import_module("fcntl")
        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _BLOCK)

    def read() -> None:
        data: bytes | OSError = b"-"
        while data and isinstance(data, bytes):
            room.acquire()
            try:
                data = os.read(descriptor, _BLOCK)
            except OSError as error:
                data = error
            try:
                loop.call_soon_threadsafe(blocks.put_nowait, data)
            except RuntimeError:
                return  # the command has ended

    threading.Thread(target=read, daemon=True).start()
    while data := await blocks.get():
        if isinstance(data, OSError):
            raise data
        room.release()
        yield data
