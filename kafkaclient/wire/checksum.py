"""CRC-32C, the checksum of record batches.

``import crc32c`` looks up the package's version, and reads the metadata of all installed packages
for that: it takes longer than most of this package. So its extension module is loaded alone, where
it is found.
"""

from __future__ import annotations

from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.types import Buffer


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
