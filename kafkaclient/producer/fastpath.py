"""From the arguments of ``send`` into the open batch, for the great majority of records.

Whatever is unusual about a record or the moment goes the long way, through ``intake.py`` and
``accumulator.py``. There, whenever a record has been put into a batch that the next one would go
to as well without any further decision, a :class:`Tap` to that batch is left behind. Through it
the next records go straight into the batch's buffer. Compiled (``_fastpath.pyx``), or its
pure-Python twin (``_fastpath_py.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkaclient.twins import load_twin

if TYPE_CHECKING:
    from kafkaclient.producer._fastpath_py import FastPath, Tap, TopicTaps
else:
    _twin, _ = load_twin("kafkaclient.producer._fastpath")
    FastPath, Tap, TopicTaps = _twin.FastPath, _twin.Tap, _twin.TopicTaps

__all__ = ["FastPath", "Tap", "TopicTaps"]
