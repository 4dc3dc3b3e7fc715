"""The monotonic clock for waits of threads."""

from __future__ import annotations

import sys
import time
from functools import partial

if sys.platform == "win32":
    monotonic = time.monotonic
else:
    monotonic = partial(time.clock_gettime, getattr(time, "CLOCK_UPTIME_RAW", time.CLOCK_MONOTONIC))
    """Seconds of the clock of ``time.monotonic``, also in a test that freezes the time: freezegun,
    and time-machine before 3.0, replace ``time.monotonic``, with which a wait would never end."""
