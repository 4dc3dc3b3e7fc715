"""Which failures are news: an outage costs a line when it begins, and one when it ends. All
connections of a client share :class:`Outages`: the second one to a broker repeats nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

_AGAIN_S = 60.0  # seconds until an outage is logged again with `reminds`; doubled each time


class Outages:
    """What fails now, by key. ``clock`` returns seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failing: dict[Hashable, list[float]] = {}
        """When each began to fail, and when it is to be logged again."""

    def note_failure(self, key: Hashable, *, reminds: bool = False) -> bool:
        """Returns whether the failure is the first one since the last success, or with ``reminds``
        the first one after 1, 2, 4, ... minutes."""
        now = self._clock()
        outage = self._failing.get(key)
        if outage is None:
            self._failing[key] = [now, now + _AGAIN_S]
            return True
        began, again_at = outage
        if not reminds or now < again_at:
            return False
        outage[1] = now + (now - began)
        return True

    def note_success(self, key: Hashable) -> float | None:
        """Returns for how many seconds the key had failed; None if it had not."""
        outage = self._failing.pop(key, None)
        return None if outage is None else self._clock() - outage[0]
