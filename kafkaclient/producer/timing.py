"""Points in time that all of the producer agrees on. Times are the clock's, in seconds."""

from __future__ import annotations

__all__ = ["NEVER", "SOON"]

NEVER = float("inf")

SOON = 0.0005
"""Work that is due within this many seconds is done now. Event loops count time in milliseconds:
the next timer would fire later than this one fired early."""
