"""A lock between operators that set throttles, and against operators that clear throttles.

Brokers cannot compare and set a configuration. Between the check that a throttle is not needed and
its removal, another operator may start a reassignment that needs the throttle. Between the read of
a partition's replicas and the start of its reassignment, another operator may move the partition,
so that the throttles are set for the wrong replicas. So each operator first announces its intent as
a key in the cluster-wide broker defaults. Brokers store keys that they do not know, and ignore
them.

An operator writes its announcement, then reads until the answer includes it. Cluster metadata is
ordered, so of two operators the later one sees the announcement of the earlier one.

- An operator that sets throttles, and then starts reassignments, waits until no other operator
  sets or clears. If two want to set, the smaller key goes first: it waits until the other has
  deleted its announcement. The other tries again later.
- An operator that clears throttles gives way to one that sets: it deletes its announcement, and
  tries again until no other operator sets. Then it reads reassignments and configurations, and
  only uses answers that include its announcement.

Operators that clear do not wait for each other. A process that dies leaves its announcement. So
the key contains an expiry time in seconds since the epoch. Other operators ignore an expired
announcement, and the next operator that clears deletes it.
"""

from __future__ import annotations

import asyncio
import logging
import re
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from enum import StrEnum
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from kafkaclient.admin.configs import ConfigResource
from kafkaclient.errors import AuthorizationError, KafkaError, ReassignmentError
from kafkaclient.time_limit import why_given_up

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable
    from random import Random

    from kafkaclient.admin.configs import Configs
    from kafkaclient.admin.session import AdminSession

_log = logging.getLogger(__name__)

CLEARING_S = 40.0  # seconds to clear throttles, counted from the announcement
_CLOCK_SKEW_S = 30.0  # seconds that the clocks of operators may differ
_WAIT_TO_CLEAR_S = 20.0  # seconds to wait while other operators set throttles
_WITHDRAW_S = 10.0  # seconds to delete an announcement, even after the operation's time limit

_KEY = re.compile(r"kafkaclient\.throttle\.(setting|clearing)\.(\d+)\.([0-9a-f]+)")


class Intent(StrEnum):
    """The change that an operator announces."""

    SETTING = "setting"
    CLEARING = "clearing"


class Announcement(NamedTuple):
    """An operator's announcement. ``expires``: seconds since the epoch; ``token`` is unique."""

    intent: Intent
    expires: int
    token: str

    @classmethod
    def all_of(cls, keys: Iterable[str]) -> list[Announcement]:
        """The announcements among the keys of a broker's configuration."""
        found = (_KEY.fullmatch(key) for key in keys)
        return [cls(Intent(match[1]), int(match[2]), match[3]) for match in found if match]

    @property
    def key(self) -> str:
        return f"kafkaclient.throttle.{self.intent}.{self.expires}.{self.token}"


class Announcements:
    """The announcements of one admin client. ``wall_clock``: seconds since the epoch."""

    def __init__(
        self,
        session: AdminSession,
        configs: Configs,
        *,
        wall_clock: Callable[[], float],
        rng: Random,
    ) -> None:
        self._session = session
        self._configs = configs
        self._wall_clock = wall_clock
        self._rng = rng

    @asynccontextmanager
    async def setting(self, timeout_s: float | None = None) -> AsyncIterator[str]:
        """Keep other operators from setting and clearing throttles during the block, which sets
        throttles and starts reassignments. Yields the announcement's key. ``timeout_s`` is the
        operation's time limit; the announcement lasts at least ``default.api.timeout.ms``."""
        seconds = max(timeout_s or 0.0, self._session.config.default_api_timeout_ms / 1000)
        for attempts in count(1):
            async with self._announced(Intent.SETTING, seconds + _WITHDRAW_S) as (own, _):
                if await self._may_set(own):
                    yield own.key
                    return
            await self._session.pause(attempts)

    @asynccontextmanager
    async def clearing(self) -> AsyncIterator[str]:
        """Keep other operators from setting throttles during the block, which may take at most
        :data:`CLEARING_S` seconds. Yields the announcement's key. If a broker's configuration lacks
        this key, its answer is too old: read it again. Raises ReassignmentError if another operator
        still sets throttles after :data:`_WAIT_TO_CLEAR_S` seconds."""
        loop = asyncio.get_running_loop()
        until = loop.time() + _WAIT_TO_CLEAR_S
        for attempts in count(1):
            ends_at = loop.time() + CLEARING_S  # later, other operators ignore the announcement
            async with self._announced(Intent.CLEARING, CLEARING_S) as (own, withdrawn):
                announced = await self._read_back(own)
                withdrawn.extend(filter(self._is_expired, announced))
                setting = self._unexpired(announced, Intent.SETTING)
                if not setting:
                    async with asyncio.timeout_at(ends_at):
                        yield own.key
                    return
            if loop.time() > until:
                raise ReassignmentError(
                    f"no throttle was cleared, because {_busy(setting)}. Run `kafkaclient throttle "
                    "clear` or `verify` again later"
                )
            await self._session.pause(attempts)

    async def any_expired(self) -> bool:
        """Whether there is an expired announcement, which a dead process left. False for a client
        that may not describe announcements: it may not delete them either."""
        try:
            return any(map(self._is_expired, await self._all()))
        except AuthorizationError:
            return False

    # ------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _announced(
        self, intent: Intent, seconds: float
    ) -> AsyncIterator[tuple[Announcement, list[Announcement]]]:
        """Announce ``intent`` during the block. Yields the announcement, and the list of those that
        are deleted at the end. Never the same key again: a broker may still know a deleted one."""
        expires = int(self._wall_clock() + seconds + _CLOCK_SKEW_S)
        own = Announcement(intent, expires, f"{self._rng.getrandbits(48):012x}")
        withdrawn = [own]
        defaults = ConfigResource.broker_defaults()
        try:
            await self._configs.alter(defaults, set={own.key: "1"})
            yield own, withdrawn
        finally:
            try:
                async with asyncio.timeout(_WITHDRAW_S):
                    await self._configs.alter(defaults, delete=[each.key for each in withdrawn])
            except AuthorizationError as error:
                _log.debug("no announcement was made: %s", error)
            except (KafkaError, TimeoutError) as error:
                text = "an announcement in the broker defaults could not be deleted, it expires: %s"
                _log.warning(text, why_given_up(error, _WITHDRAW_S))

    def _is_expired(self, announcement: Announcement) -> bool:
        return announcement.expires <= self._wall_clock()

    def _unexpired(self, announced: Iterable[Announcement], intent: Intent) -> list[Announcement]:
        return [a for a in announced if a.intent is intent and not self._is_expired(a)]

    async def _may_set(self, own: Announcement) -> bool:
        """Wait until no other operator sets or clears. False if another operator is to set first:
        it waits until ``own`` is deleted."""

        async def read() -> list[Announcement]:
            announced = await self._read_back(own)
            others = [each for each in announced if each != own and not self._is_expired(each)]
            if others:
                self._session.note_error(ReassignmentError(_busy(others)))
            return others

        def is_first(others: list[Announcement]) -> bool:
            return all(own < each for each in self._unexpired(others, Intent.SETTING))

        others = await self._session.poll(read, lambda others: not (others and is_first(others)))
        return not others

    async def _all(self) -> list[Announcement]:
        return Announcement.all_of(await self._configs.describe(ConfigResource.broker_defaults()))

    async def _read_back(self, own: Announcement) -> list[Announcement]:
        """All announcements, read from a broker that already knows ``own``."""

        async def read() -> list[Announcement]:
            announced = await self._all()
            if own not in announced:
                self._session.note_error(
                    ReassignmentError(
                        f"the key {own.key} is not in the brokers' configuration yet; if it never "
                        "appears, another operator with a different clock deleted it"
                    )
                )
            return announced

        return await self._session.poll(read, lambda announced: own in announced)


def _busy(others: Iterable[Announcement]) -> str:
    """Which operators this one waits for."""
    last = max(others, key=lambda each: each.expires)
    expires = datetime.fromtimestamp(last.expires, UTC)
    return (
        f"another operator is {last.intent} throttles, or died during that; its announcement "
        f"expires at {expires:%Y-%m-%d %H:%M:%S} UTC"
    )
