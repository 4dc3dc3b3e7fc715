"""Keeps operators that set throttles and operators that clear throttles apart.

Brokers cannot compare and set a configuration: between reading that a throttle is not needed and
clearing it, another operator may begin a move that needs it. So each operator announces first what
it is about to do, as a key of the configuration of all brokers. Brokers keep keys that they do not
know, and do nothing with them.

An operator writes its announcement, then reads until the answer has it. Cluster metadata has one
order, so of two operators the one whose announcement comes later sees the other's, unless that one
has ended.

- An operator that sets throttles (and then begins moves) waits until no operator clears.
- An operator that clears throttles withdraws its announcement while another operator sets, and
  tries again. It reads moves and configurations only afterwards, in answers that have its
  announcement.

Operators that set do not wait for each other, and neither do operators that clear. A process that
dies leaves its announcement. So the key contains a time, in seconds since the epoch, from which on
other operators ignore the announcement; the next operator that clears deletes it.
"""

from __future__ import annotations

import asyncio
import logging
import re
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from kafkaclient.admin.configs import ConfigResource
from kafkaclient.errors import AuthorizationError, KafkaError, ReassignmentError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable
    from random import Random

    from kafkaclient.admin.configs import Configs
    from kafkaclient.admin.session import Session

__all__ = ["CLEARING_S", "Announcement", "Doing", "Turns"]

_log = logging.getLogger(__name__)

CLEARING_S = 40.0  # seconds that an operator has to clear throttles, from making its announcement
_LEEWAY_S = 30.0  # seconds that the clocks of operators may differ by
_PATIENCE_S = 20.0  # seconds that an operator waits to clear while other operators set
_WITHDRAWING_S = 10.0  # seconds to delete an announcement, also when an operation is out of time

_KEY = re.compile(r"kafkaclient\.throttle\.(setting|clearing)\.(\d+)\.([0-9a-f]+)")


class Doing(StrEnum):
    """What an operator announces."""

    SETTING = "setting"
    CLEARING = "clearing"


class Announcement(NamedTuple):
    """``expires``: seconds since the epoch; ``token`` tells operators apart."""

    doing: Doing
    expires: int
    token: str

    @classmethod
    def all_of(cls, keys: Iterable[str]) -> list[Announcement]:
        """The announcements among the keys of a broker's configuration."""
        found = (_KEY.fullmatch(key) for key in keys)
        return [cls(Doing(match[1]), int(match[2]), match[3]) for match in found if match]

    @property
    def key(self) -> str:
        return f"kafkaclient.throttle.{self.doing}.{self.expires}.{self.token}"


class Turns:
    """The announcements of one admin client. ``wall_clock``: seconds since the epoch."""

    def __init__(
        self,
        session: Session,
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
        """While the block runs, no other operator clears throttles: set throttles and begin the
        moves inside. Yields the announcement's key. ``timeout_s`` is the operation's time limit in
        seconds, and counts if it is longer than ``default.api.timeout.ms``."""
        seconds = max(timeout_s or 0.0, self._session.config.default_api_timeout_ms / 1000)
        own = self._announcement(Doing.SETTING, seconds + _WITHDRAWING_S)
        try:
            await self._announce(own)
            waits = 0
            while self._heeded(await self._told(own), Doing.CLEARING):
                waits += 1
                await self._session.pause(waits)
            yield own.key
        finally:
            await self._withdraw([own])

    @asynccontextmanager
    async def clearing(self) -> AsyncIterator[str]:
        """While the block runs, at most :data:`CLEARING_S` seconds, no other operator begins to set
        throttles. Yields the announcement's key. A broker whose configuration lacks this key has
        not caught up: read from it again before you rely on its answer. Raises ReassignmentError if
        another operator still sets throttles after :data:`_PATIENCE_S` seconds."""
        loop = asyncio.get_running_loop()
        until = loop.time() + _PATIENCE_S
        waits = 0
        while True:
            ends_at = loop.time() + CLEARING_S  # others heed the announcement for so long
            own = self._announcement(Doing.CLEARING, CLEARING_S)
            expired: list[Announcement] = []
            try:
                await self._announce(own)
                told = await self._told(own)
                setting = self._heeded(told, Doing.SETTING)
                expired = [each for each in told if self._is_over(each)]
                if not setting:
                    async with asyncio.timeout_at(ends_at):
                        yield own.key
                    return
            finally:
                await self._withdraw([own, *expired])
            if loop.time() > until:
                raise _occupied(setting)
            waits += 1
            await self._session.pause(waits)

    async def any_left(self) -> bool:
        """Whether a process that died left an announcement that has expired."""
        keys = await self._configs.describe(ConfigResource.broker_defaults())
        return any(map(self._is_over, Announcement.all_of(keys)))

    # ------------------------------------------------------------------------------------------

    def _announcement(self, doing: Doing, seconds: float) -> Announcement:
        expires = int(self._wall_clock() + seconds + _LEEWAY_S)
        return Announcement(doing, expires, f"{self._rng.getrandbits(48):012x}")

    def _is_over(self, each: Announcement) -> bool:
        return each.expires <= self._wall_clock()

    def _heeded(self, told: Iterable[Announcement], doing: Doing) -> list[Announcement]:
        return [each for each in told if each.doing is doing and not self._is_over(each)]

    async def _announce(self, own: Announcement) -> None:
        await self._alter({own.key: "1"}, ())

    async def _told(self, own: Announcement) -> list[Announcement]:
        """All announcements, from a broker whose metadata already includes ``own``."""
        waits = 0
        while True:
            keys = await self._configs.describe(ConfigResource.broker_defaults())
            told = Announcement.all_of(keys)
            if own in told:
                return told
            self._session.answered(
                ReassignmentError(
                    f"the key {own.key} is not in the brokers' configuration yet; if it never "
                    "appears, another operator deleted it, whose clock differs from this one's"
                )
            )
            waits += 1
            await self._session.pause(waits)

    async def _withdraw(self, announcements: Iterable[Announcement]) -> None:
        try:
            async with asyncio.timeout(_WITHDRAWING_S):
                await self._alter({}, [each.key for each in announcements])
        except AuthorizationError as error:
            _log.debug("nothing was announced: %s", error)
        except (KafkaError, TimeoutError) as error:
            _log.warning("an announcement stays until it expires: %s", error)

    async def _alter(self, set_: dict[str, str], delete: Iterable[str]) -> None:
        await self._configs.alter(
            ConfigResource.broker_defaults(),
            set=set_,
            delete=delete,
            append={},
            subtract={},
            validate_only=False,
        )


def _occupied(setting: list[Announcement]) -> ReassignmentError:
    last = max(each.expires for each in setting)
    return ReassignmentError(
        "another operator is setting throttles, or died while it did. Nothing was cleared. Run "
        "`kafkaclient throttle clear` or `verify` again later; the other operator's announcement "
        f"expires at {datetime.fromtimestamp(last, UTC):%Y-%m-%d %H:%M:%S} UTC"
    )
