"""Which modules are compiled, and whether what is built is of today's sources.

A module is compiled if a ``.pxd`` with its C types lies beside its source, or if its source is a
``.pyx``. Each extension carries a hash of the sources it depends on.
"""

from __future__ import annotations

import sys
from hashlib import sha256
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

ROOT = Path(__file__).parent.parent
# Cython's own types of functions and classes, in one extension instead of in each, where they would
# be a tenth of the size. This extension has no source: Cython writes its C.
SHARED = "kafkaclient._cython"


def sources(root: Path = ROOT) -> dict[str, Path]:
    """The source of each compiled module, by the module's name."""
    package = root / "kafkaclient"
    found = {*package.rglob("*.pyx"), *(p.with_suffix(".py") for p in package.rglob("*.pxd"))}
    return {
        ".".join(source.relative_to(root).with_suffix("").parts): source
        for source in sorted(found)
        if source.exists()
    }


def c_types(root: Path = ROOT) -> bytes:
    """All C types of the package."""
    found = sorted((root / "kafkaclient").rglob("*.pxd"))
    return b"".join([types.read_bytes() for types in found])


def _marker(source: Path, types: bytes) -> bytes:
    """What the extension of this source contains: any C type may change what is compiled."""
    digest = sha256(source.read_bytes() + types)
    return b"kafkaclient-sources:" + digest.hexdigest().encode()


def mark(c_file: Path, source: Path, types: bytes) -> None:
    """Have the translated source contain the marker. ``types``: see :func:`c_types`."""
    line = b'const char kafkaclient_sources[] = "' + _marker(source, types) + b'";\n'
    generated_by, _, code = c_file.read_bytes().partition(b"\n")  # Cython looks for its first line
    if not code.startswith(line):
        code = code.partition(b"\n")[2] if code.startswith(line[:24]) else code
        c_file.write_bytes(b"".join((generated_by, b"\n", line, code)))


def stale(root: Path = ROOT) -> list[str]:
    """The modules that are not compiled from today's sources."""
    types = c_types(root)
    return [name for name, source in sources(root).items() if not _is_current(source, types)]


def _is_current(source: Path, types: bytes) -> bool:
    built = [source.with_suffix(suffix) for suffix in EXTENSION_SUFFIXES]
    first = next((each for each in built if each.exists()), None)
    return first is not None and _marker(source, types) in first.read_bytes()


if __name__ == "__main__":
    if found := stale():
        sys.exit(f"not compiled from today's sources: {', '.join(found)}. make build compiles them")
