"""The status that an instance reports."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Status"]


@dataclass(frozen=True, slots=True)
class Status:
    """The names of an instance's tasks (``0_1``), and the bytes that it read from changelogs."""

    running: list[str] = field(default_factory=list)
    """Tasks that process records."""
    restoring: list[str] = field(default_factory=list)
    copies: dict[str, int | None] = field(default_factory=dict)
    """Standbys and warm-ups -> their lag in records; None: not known yet."""
    restored_bytes: int = 0
    followed_bytes: int = 0
