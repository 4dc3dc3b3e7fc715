"""Reads a batch's end offsets from a query's checkpoint, if the checkpoint is on this machine."""

from __future__ import annotations

from pathlib import Path

_HEADER_LINES = 2  # the version and the metadata; then there is one line per source


def end_offsets(location: str | None, batch: int) -> str | None:
    """The end offsets of a batch, one line per source, as Spark wrote them before the batch ran.

    Spark reads the same file to repeat the batch (Java: ``OffsetSeqLog``). ``location`` is the
    option checkpointLocation. None if the file cannot be read: the checkpoint is in HDFS, in an
    object store or on another machine, or it was set by configuration.
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
    # Parsed as Java's org.apache.hadoop.fs.Path does: %20, ? and # have no special meaning.
    scheme, colon, rest = location.partition(":")
    if not colon or "/" in scheme:
        return Path(location)
    if scheme != "file":
        return None
    host, slash, path = rest[2:].partition("/") if rest.startswith("//") else ("", "", rest)
    return Path(slash + path) if host in ("", "localhost") else None
