"""What an instance says of itself."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Told"]


@dataclass(frozen=True, slots=True)
class Told:
    """What an instance is doing."""

    running: list[int] = field(default_factory=list)
    """Tasks that process."""
    restoring: list[int] = field(default_factory=list)
    copies: dict[str, int | None] = field(default_factory=dict)
    """Standbys and copies that warm up, with their lags; None: not known yet."""
    restored_bytes: int = 0
    followed_bytes: int = 0
