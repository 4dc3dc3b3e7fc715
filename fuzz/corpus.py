"""The inputs worth keeping: one file per target, a line of base64 per input."""

from __future__ import annotations

from base64 import b64decode, b64encode
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["read", "write"]

_DIRECTORY = Path(__file__).parent / "inputs"


def read(target: str) -> list[bytes]:
    path = _DIRECTORY / f"{target}.txt"
    return [b64decode(line) for line in path.read_text().split()] if path.exists() else []


def write(target: str, inputs: Iterable[bytes]) -> None:
    lines = sorted({b64encode(data).decode() for data in inputs if data})
    text = "".join(f"{line}\n" for line in sorted(lines, key=len))
    (_DIRECTORY / f"{target}.txt").write_text(text)
