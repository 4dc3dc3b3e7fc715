"""Constants of time, in seconds of the clock."""

from __future__ import annotations

NEVER = float("inf")

SOON = 0.0005
"""Work that is due within this many seconds is done now. Event loops count time in milliseconds, so
another timer would fire later than the work is due."""
