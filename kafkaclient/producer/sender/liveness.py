"""Which brokers are dead, as far as can be told from here.

A Produce request that is not answered says little: its broker may wait for another one, which has
to confirm the records. So whoever may be the cause is asked for a sign of life, on a connection of
its own, where nothing else can hold it up. A paused process keeps its connections and answers
nothing; a killed one can't be connected to.
"""

from __future__ import annotations

import asyncio
import logging
import math
from typing import TYPE_CHECKING

from kafkaclient.errors import BrokerConnectionError, KafkaError, RequestTimedOutError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafkaclient.producer.sender.ports import LivenessProbe

__all__ = ["BrokerLiveness"]

_log = logging.getLogger(__name__)

_ASK_AGAIN = 0.1
"""The pause before a broker that could not be reached is asked once more, in seconds."""

_MOURNING = 30.0
"""For how long a broker is asked, in seconds. The cluster has had the time to find out by then: if
the broker still counts, it is only us who don't reach it."""


class BrokerLiveness:
    """Asks brokers for signs of life while they are doubted.

    ``dead`` are those that were asked and did not answer in time, until they do.
    ``on_change()`` is called when these change, and when no doubt is left.
    """

    def __init__(
        self, phone: LivenessProbe, *, clock: Callable[[], float], on_change: Callable[[], None]
    ) -> None:
        self.dead: frozenset[int] = frozenset()
        self._probe = phone
        self._clock = clock
        self._on_change = on_change
        self._asked_at: dict[int, float] = {}
        """Those in doubt, dead or not yet: since when they are asked."""
        self._alive_at: dict[int, float] = {}
        """When there was a sign of life, of those that had been doubted."""
        self._inquiries: dict[int, asyncio.Task[None]] = {}
        self._closed = False

    def __repr__(self) -> str:
        return f"<BrokerLiveness dead={sorted(self.dead)} doubted={sorted(self._asked_at)}>"

    @property
    def probe_pending(self) -> bool:
        """Whether somebody is asked who may yet answer in time."""
        return len(self._asked_at) > len(self.dead)

    @property
    def any_suspected(self) -> bool:
        """Whether anybody is asked, dead or not yet."""
        return bool(self._asked_at)

    def alive_since(self, node_id: int, since: float) -> bool:
        """Whether there was a sign of life at ``since`` or later, when it was doubted."""
        return self._alive_at.get(node_id, -math.inf) >= since

    def suspect(self, nodes: Iterable[int], since: float) -> None:
        """Something that these brokers have to do with is late ``since`` that time."""
        if self._closed:
            return
        for node_id in nodes:
            if node_id not in self._asked_at and not self.alive_since(node_id, since):
                self._asked_at[node_id] = self._clock()
                self._inquiries[node_id] = asyncio.create_task(
                    self._inquire(node_id), name=f"kafkaclient-sign-of-life-{node_id}"
                )

    def expire_probes(
        self, now: float, awake_since: float, patience: Callable[[int], float]
    ) -> None:
        """Give up those that were asked longer ago than ``patience(node_id)`` seconds, all of
        which the event loop was awake to hear of their answer."""
        if not self.probe_pending:
            return
        for node_id, asked_at in list(self._asked_at.items()):
            if now - max(asked_at, awake_since) > patience(node_id):
                self._mark_dead(node_id)

    def confirm(self, nodes: Iterable[int], sent_at: float) -> None:
        """These brokers have had to do with the answer to what was sent at this time."""
        for node_id in nodes:
            if self._asked_at.get(node_id, math.inf) <= sent_at:
                self._mark_alive(node_id)

    def close(self) -> None:
        """Ask nobody any more."""
        self._closed = True
        for inquiry in self._inquiries.values():
            inquiry.cancel()

    async def _inquire(self, node_id: int) -> None:
        until = self._clock() + _MOURNING
        while self._probe.knows(node_id) and self._clock() < until:
            try:
                await self._probe.probe(node_id)
            except (BrokerConnectionError, RequestTimedOutError):
                self._mark_dead(node_id)
                await asyncio.sleep(_ASK_AGAIN)
            except KafkaError:
                break  # whatever it says, it speaks
            else:
                break
        self._mark_alive(node_id)

    def _mark_dead(self, node_id: int) -> None:
        if node_id not in self.dead:
            _log.info("broker %d gives no sign of life", node_id)
            self.dead |= {node_id}
            self._on_change()

    def _mark_alive(self, node_id: int) -> None:
        inquiry = self._inquiries.pop(node_id, None)
        if inquiry is not None and inquiry is not asyncio.current_task():
            inquiry.cancel()
        del self._asked_at[node_id]
        self._alive_at[node_id] = self._clock()
        if node_id in self.dead:
            _log.info("broker %d counts as alive again", node_id)
            self.dead -= {node_id}
            self._on_change()
        elif not self.probe_pending:
            self._on_change()
