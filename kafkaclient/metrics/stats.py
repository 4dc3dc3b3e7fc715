"""Statistics over the last few windows of time (Java: ``SampledStat``, ``Rate``, ``Avg``, ``Max``).

Java keeps one object per statistic. Here one :class:`Windowed` serves them all, so that an event
costs one call whatever is read from it later. ``_stats_py.py`` is the source, compiled or as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkaclient.twins import load_twin

if TYPE_CHECKING:
    from kafkaclient.metrics._stats_py import Windowed, Windows
else:
    _twin, _ = load_twin("kafkaclient.metrics._stats")
    Windowed, Windows = _twin.Windowed, _twin.Windows

__all__ = ["Windowed", "Windows"]
