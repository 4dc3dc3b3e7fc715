"""Places in partitions: offsets, times, the first and the last records, moved committed offsets."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from typing import TypeAlias

    from kafkaclient.admin.admin import Admin
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
_SHIFT = re.compile(r"\+(\d+)|(\d+)-")
_NONE: Mapping[TopicPartition, int] = MappingProxyType({})
HELP = (
    "earliest, latest, an offset, -N (the last N records of each partition), a time "
    "(2026-11-28T15:00 is UTC, 2026-11-28T15:00+01:00, @MILLISECONDS) or how long ago (90s, 30m, "
    "2h, 7d)"
)
SHIFTED = f"{HELP}; +N or N-: N offsets after or before the committed one"


class Place(NamedTuple):
    """A place in every partition: exactly one is given."""

    word: str | None = None
    """"earliest" or "latest"."""
    offset: int | None = None
    """A negative number counts from the end."""
    time_ms: int | None = None
    """The first record that is not older, in milliseconds since 1970; without one, the end."""
    shift: int | None = None
    """How many offsets after the committed one; a negative number is before it."""

    @classmethod
    def parse(cls, text: str, flag: str, *, shifts: bool = False) -> Place:
        """Raises ConfigError if the text is none of :data:`HELP`, or with ``shifts`` of
        :data:`SHIFTED`."""
        if shifts and (found := _SHIFT.fullmatch(text)):
            return cls(shift=int(found[1]) if found[1] else -int(found[2]))
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
        try:
            time_ms = round(_utc(datetime.fromisoformat(text)).timestamp() * 1000)
        except (ValueError, OverflowError):
            time_ms = -1
        if time_ms < 0:
            raise ConfigError(f"{flag} {text!r} is none of: {SHIFTED if shifts else HELP}")
        return cls(time_ms=time_ms)

    async def of(
        self,
        offsets: Callable[[Iterable[TopicPartition], int], Awaitable[Offsets]],
        first: dict[TopicPartition, int],
        end: dict[TopicPartition, int],
        committed: Mapping[TopicPartition, int] = _NONE,
    ) -> dict[TopicPartition, int]:
        """The offset in each partition, between its first one and its end. ``offsets``: those of
        the first records that are not older than a time. A shift leaves out partitions of which
        nothing is committed."""
        if self.time_ms is not None:
            found = await offsets(end, self.time_ms)
            return {where: end[where] if at is None else at for where, at in found.items()}
        if self.word is not None:
            return first if self.word == "earliest" else end
        if self.shift is not None:
            wanted = {each: committed[each] + self.shift for each in end if each in committed}
        else:
            offset = self.offset or 0
            wanted = {each: end[each] + offset if offset < 0 else offset for each in end}
        return {each: min(max(first[each], at), end[each]) for each, at in wanted.items()}


def _utc(time: datetime) -> datetime:
    """As in Kafka's tools, a time without a zone is in UTC."""
    return time if time.tzinfo else time.replace(tzinfo=UTC)


async def admin_ends(
    admin: Admin, partitions: Iterable[TopicPartition], *, read_committed: bool
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """The first offsets and the ends, of partitions with a leader."""
    wanted = list(partitions)
    first = await admin.beginning_offsets(wanted)
    return first, await admin.end_offsets(wanted, read_committed=read_committed)


async def admin_offsets(
    admin: Admin,
    place: Place,
    first: dict[TopicPartition, int],
    end: dict[TopicPartition, int],
    committed: Mapping[TopicPartition, int] = _NONE,
) -> dict[TopicPartition, int]:
    """The offsets of a place, for the partitions whose first offset and end :func:`admin_ends` has
    found."""

    async def at_time(where: Iterable[TopicPartition], time_ms: int) -> Offsets:
        answers = await admin.list_offsets(where, time_ms)
        return {each: None if offset < 0 else offset for each, offset in answers.items()}

    there = {each: at for each, at in end.items() if each in first}
    return await place.of(at_time, first, there, committed)
