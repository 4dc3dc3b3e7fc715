"""Places in partitions: offsets, times, the first and the last records."""

from __future__ import annotations

import re
import time
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from typing import TypeAlias

    from kafkaclient.types import TopicPartition

    Offsets: TypeAlias = dict[TopicPartition, int | None]

_WORDS = {
    "earliest": "earliest",
    "beginning": "earliest",
    "start": "earliest",
    "latest": "latest",
    "end": "latest",
}
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DURATION = re.compile(r"-?(\d+)([smhdw])")
_MILLISECONDS = re.compile(r"@(\d+)")
HELP = (
    "earliest, latest, an offset, -N (the last N records of each partition), a time "
    "(2026-11-28T15:00, @MILLISECONDS) or how long ago (90s, 30m, 2h, 7d)"
)


class Place(NamedTuple):
    """A place in every partition: exactly one is given."""

    word: str | None = None
    """"earliest" or "latest"."""
    offset: int | None = None
    """A negative number counts from the end."""
    time_ms: int | None = None

    @classmethod
    def parse(cls, text: str, flag: str) -> Place:
        """Raises ConfigError if the text is none of :data:`HELP`."""
        if text in _WORDS:
            return cls(word=_WORDS[text])
        if found := _DURATION.fullmatch(text):
            return cls(time_ms=round((time.time() - int(found[1]) * _UNITS_S[found[2]]) * 1000))
        if found := _MILLISECONDS.fullmatch(text):
            return cls(time_ms=int(found[1]))
        try:
            return cls(offset=int(text))
        except ValueError:
            pass
        try:  # without a time zone: of this machine
            return cls(time_ms=round(datetime.fromisoformat(text).timestamp() * 1000))
        except (ValueError, OverflowError):
            raise ConfigError(f"{flag} {text!r} is none of: {HELP}") from None

    async def of(
        self,
        offsets: Callable[[Iterable[TopicPartition], int], Awaitable[Offsets]],
        first: dict[TopicPartition, int],
        end: dict[TopicPartition, int],
    ) -> dict[TopicPartition, int]:
        """The offset in each partition, between its first one and its end. ``offsets``: those of
        the first records that are not older than a time."""
        if self.time_ms is not None:
            found = await offsets(end, self.time_ms)
            return {where: end[where] if at is None else at for where, at in found.items()}
        if self.word is not None:
            return first if self.word == "earliest" else end
        offset = self.offset or 0
        return {
            where: min(max(first[where], end[where] + offset if offset < 0 else offset), end[where])
            for where in end
        }
