"""What a query's checkpoint says of a batch, where this process can read it."""

from __future__ import annotations

from pathlib import Path

__all__ = ["end_offsets"]

_HEADER_LINES = 2  # the version, and metadata with the time at which the batch was planned


def end_offsets(location: str | None, batch: int) -> str | None:
    """Where a batch ends in each of its sources, a line per source, as Spark notes it before the
    batch runs and reads it again to repeat the batch (Java: ``OffsetSeqLog``).

    ``location`` is the option checkpointLocation. None when the file cannot be read: the checkpoint
    is in HDFS or in an object store, was given by configuration, or is another machine's.
    """
    folder = _local(location)
    if folder is None:
        return None
    try:
        lines = (folder / "offsets" / str(batch)).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    if len(lines) <= _HEADER_LINES or not lines[0].startswith("v"):
        return None
    return "\n".join(lines[_HEADER_LINES:])


def _local(location: str | None) -> Path | None:
    if not location:
        return None
    # As Java's org.apache.hadoop.fs.Path: neither %20 nor ? nor # mean anything in it.
    scheme, colon, rest = location.partition(":")
    if not colon or "/" in scheme:
        return Path(location)
    if scheme != "file":
        return None
    host, slash, path = rest[2:].partition("/") if rest.startswith("//") else ("", "", rest)
    return Path(slash + path) if host in ("", "localhost") else None
