"""Opens the file system of a folder of telemetry: a local path, or a URI."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import fs

from kafkaclient.config.options import TelemetryTarget
from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    from os import PathLike

_OF_PYARROW = frozenset({"abfs", "abfss", "file", "gcs", "gs", "hdfs", "s3", "viewfs"})


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
