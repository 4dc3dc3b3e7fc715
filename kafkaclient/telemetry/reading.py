"""The files of telemetry: their file systems, their names, which there are, and their rows."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from kafkaclient.config.options import TelemetryTarget
from kafkaclient.errors import ConfigError
from kafkaclient.telemetry.format import EXCLUSIONS_KEY, check_metadata, checked, start_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike

HOUR = timedelta(hours=1)

_OF_PYARROW = frozenset({"abfs", "abfss", "file", "gcs", "gs", "hdfs", "s3", "viewfs"})

_PATTERN = "batches-*.parquet"
_NAME = re.compile(r"(batches-.+?)(?:-(\d+))?\.parquet")


def check_scheme(target: TelemetryTarget) -> None:
    """Raises ConfigError if neither pyarrow nor an installed fsspec knows the URI's scheme. Does no
    I/O on the file system."""
    if not target.scheme or target.scheme in _OF_PYARROW:
        return
    try:
        fsspec: Any = import_module("fsspec")
        fsspec.get_filesystem_class(target.scheme)
    except (ImportError, ValueError) as error:
        raise ConfigError(
            f"telemetry={target} cannot be opened: pyarrow has no file system for "
            f"{target.scheme}://, and fsspec neither: {error}"
        ) from error


def open_root(root: str | PathLike[str] | TelemetryTarget) -> tuple[Any, str]:
    """The ``pyarrow.fs.FileSystem`` of a folder of telemetry, and the folder's path in it. The file
    system can be pickled.

    May ask servers, for example for a bucket's region. Raises ConfigError for an unknown scheme or
    a URI with mistakes, OSError if the file system cannot be reached.
    """
    target = root if isinstance(root, TelemetryTarget) else TelemetryTarget(os.fspath(root))
    if target.topic is not None:
        raise ConfigError(f"{target} is a topic: it has messages, no files")
    check_scheme(target)
    if not target.scheme:
        return fs.LocalFileSystem(), os.path.abspath(target.text)
    if target.scheme in _OF_PYARROW:
        try:
            opened, path = fs.FileSystem.from_uri(target.uri)
        except pa.ArrowInvalid as error:
            raise ConfigError(f"telemetry={target}: {target.hide(str(error))}") from None
        return opened, path.rstrip("/")
    core: Any = import_module("fsspec.core")
    found, path = core.url_to_fs(target.uri)
    return fs.PyFileSystem(fs.FSSpecHandler(found)), path.rstrip("/")


class TelemetryFile(NamedTuple):
    """A file of telemetry."""

    path: str
    """In the file system of the folder (:func:`open_root`)."""
    hour: datetime
    """The start of the UTC hour in which all batches of the file had their outcome."""
    size: int
    """In bytes."""
    producer: str
    """The common part of the names of one producer's files."""
    number: int
    """Counts the files of a producer, from 0."""


def folder_of(hour: datetime) -> str:
    """The folder of an hour, below the folder of telemetry."""
    return f"date={hour:%Y-%m-%d}/hour={hour:%H}"


def files(
    root: str | PathLike[str], since: datetime | None = None, until: datetime | None = None
) -> list[TelemetryFile]:
    """The files in a folder of telemetry that have batches of ``since`` (included) to ``until``
    (excluded), in the order in which each producer wrote them.

    Whole hours are chosen, without opening a file.

    Raises ConfigError for a time without a time zone, if ``since`` is not before ``until``, or for
    a URI with mistakes; OSError if the folder cannot be read.
    """
    return files_in(*open_root(root), since, until)


def files_in(
    opened: Any, path: str, since: datetime | None = None, until: datetime | None = None
) -> list[TelemetryFile]:
    """As :func:`files`, of a folder in the file system ``opened``."""
    for limit in (since, until):
        if limit is not None and limit.tzinfo is None:
            raise ConfigError(f"{limit} has no time zone: give one, such as datetime.UTC")
    if since is not None and until is not None and since >= until:
        raise ConfigError(f"no time is from {since} to before {until}: exchange since and until")
    found = (
        file
        for hour, folder in hours(opened, path, since, until)
        for file in _telemetry_in(opened, folder, hour)
    )
    return sorted(found, key=lambda file: (file.producer, file.number, file.path))


def hours(
    opened: Any, root: str, since: datetime | None = None, until: datetime | None = None
) -> Iterator[tuple[datetime, str]]:
    """The folders ``date=YYYY-MM-DD/hour=HH`` with their hours, in order. Only those that have
    times of ``since`` to before ``until`` are listed."""
    for day, folder in _folders(opened, root, "date=%Y-%m-%d"):
        date = day.date()
        if (since and date < since.astimezone(UTC).date()) or (
            until and date > until.astimezone(UTC).date()
        ):
            continue
        for clock, below in _folders(opened, folder, "hour=%H"):
            hour = datetime.combine(date, clock.time(), UTC)
            if (since is None or hour + HOUR > since) and (until is None or hour < until):
                yield hour, below


def _folders(opened: Any, path: str, form: str) -> Iterator[tuple[datetime, str]]:
    for info in entries(opened, path):
        try:
            at = datetime.strptime(info.base_name, form)  # noqa: DTZ007 - the caller adds UTC
        except ValueError:
            continue
        if info.type == fs.FileType.Directory and f"{at:{form}}" == info.base_name:
            yield at, info.path


def entries(opened: Any, path: str) -> list[Any]:
    """What is in a folder, by name; nothing if the folder does not exist. Symbolic links of a local
    disk are left out: they may lead to files of others."""
    chosen = fs.FileSelector(path, allow_not_found=True)
    found = sorted(opened.get_file_info(chosen), key=lambda info: info.base_name)
    if opened.type_name != "local":
        return found
    return [info for info in found if not os.path.islink(info.path)]


def _telemetry_in(opened: Any, path: str, hour: datetime) -> Iterator[TelemetryFile]:
    for info in entries(opened, path):
        match = _NAME.fullmatch(info.base_name)
        # A file without content is being written: some object stores show it.
        if match and info.type == fs.FileType.File and info.size:
            yield TelemetryFile(info.path, hour, info.size, match[1], int(match[2] or 0))


def read(
    root: str | PathLike[str], since: datetime | None = None, until: datetime | None = None
) -> pa.Table:
    """All batches in the :func:`files` of a folder of telemetry, as one ``pyarrow.Table``.

    The column ``started``, after those of :data:`~kafkaclient.telemetry.format.SCHEMA`, is the
    wall-clock time at which the times of a row start: they are seconds of its producer's own clock.
    The batches of each producer are in the order of their outcomes. The table has the metadata that
    all files share, without exclusions, which are those of one file. A file that is deleted
    meanwhile, for example by a retention, is left out.

    Raises FileNotFoundError if there are no files, ConfigError for a file that is not telemetry,
    and otherwise as :func:`files`.
    """
    opened, path = open_root(root)
    tables = []
    for file in files_in(opened, path, since, until):
        with suppress(FileNotFoundError):
            tables.append(_read_file(opened, file.path))
    if not tables:
        shown = TelemetryTarget(os.fspath(root))
        raise FileNotFoundError(
            f"no {_PATTERN} in {shown}: is it the right folder, and has a producer written there?"
        )
    shared = set.intersection(*(set(table.schema.metadata.items()) for table in tables))
    whole = pa.concat_tables(table.replace_schema_metadata() for table in tables)
    metadata = {key: text for key, text in shared if key != EXCLUSIONS_KEY.encode()}
    return whole.unify_dictionaries().replace_schema_metadata(metadata)


def _read_file(opened: Any, path: str) -> pa.Table:
    try:
        with opened.open_input_file(path) as file:
            table = pq.ParquetFile(file).read()  # read_table would add the columns date and hour
    except pa.ArrowException as error:
        raise ConfigError(f"{path} is not a file of telemetry: {error}") from error
    except OSError as error:
        raise type(error)(f"{path} cannot be read: {error}") from error
    table = checked(table, path)
    started = pa.scalar(start_of(table.schema.metadata), pa.timestamp("us", "UTC"))
    return table.append_column("started", pa.repeat(started, len(table)))


def started_at(path: str | PathLike[str], filesystem: Any = None) -> datetime:
    """The wall-clock time at which the times in a file start. ``filesystem``: the
    ``pyarrow.fs.FileSystem`` of the path; None: the path is local.

    Raises ConfigError for a file that no producer's telemetry wrote, or a newer kafkaclient.
    """
    where = str(path)
    try:
        metadata = pq.read_schema(where, filesystem=filesystem).metadata or {}
    except pa.ArrowInvalid as error:
        raise ConfigError(f"{path} is not a file of telemetry: {error}") from error
    check_metadata(metadata, where)
    return start_of(metadata)
