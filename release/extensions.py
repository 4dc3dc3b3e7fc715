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


def sources(root: Path = ROOT) -> dict[str, Path]:
    """The source of each compiled module, by the module's name."""
    package = root / "kafkaclient"
    typed = (types.with_suffix(".py") for types in package.rglob("*.pxd"))
    found = {*package.rglob("*.pyx"), *(each for each in typed if each.name != "__init__.py")}
    return {
        ".".join(source.relative_to(root).with_suffix("").parts): source
        for source in sorted(found)
        if source.exists()
    }


def marker(source: Path, root: Path = ROOT) -> bytes:
    """What the extension of this source contains: any C type may change what is compiled."""
    digest = sha256(source.read_bytes())
    for types in sorted((root / "kafkaclient").rglob("*.pxd")):
        digest.update(types.read_bytes())
    return b"kafkaclient-sources:" + digest.hexdigest().encode()


def mark(c_file: Path, source: Path, root: Path = ROOT) -> None:
    """Have the translated source contain the marker."""
    line = b'const char kafkaclient_sources[] = "' + marker(source, root) + b'";\n'
    generated_by, _, code = c_file.read_bytes().partition(b"\n")  # Cython looks for its first line
    if not code.startswith(line):
        code = code.partition(b"\n")[2] if code.startswith(line[:24]) else code
        c_file.write_bytes(b"".join((generated_by, b"\n", line, code)))


def stale(root: Path = ROOT) -> list[str]:
    """The modules that are not compiled from today's sources."""
    return [name for name, source in sources(root).items() if not _is_current(source, root)]


def _is_current(source: Path, root: Path) -> bool:
    built = [source.with_suffix(suffix) for suffix in EXTENSION_SUFFIXES]
    first = next((each for each in built if each.exists()), None)
    return first is not None and marker(source, root) in first.read_bytes()


if __name__ == "__main__":
    if found := stale():
        sys.exit(f"not compiled from today's sources: {', '.join(found)}. make build compiles them")
