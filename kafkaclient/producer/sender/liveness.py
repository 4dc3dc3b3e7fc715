"""Which brokers are dead, and which connections lead to the wrong broker.

A Produce request without an answer says little: its broker may wait for another broker, which has
to confirm the records. So every broker that may be the cause is probed, on a connection of its own,
where nothing else can block the probe. A paused process keeps its connections and answers nothing;
a killed process refuses connections.
"""

from __future__ import annotations

import asyncio
import logging
import math
from typing import TYPE_CHECKING

from kafkaclient.cluster.identity import WrongBrokerError
from kafkaclient.cluster.waits import Outages
from kafkaclient.errors import BrokerConnectionError, KafkaError, RequestTimedOutError
from kafkaclient.log_fields import log_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafkaclient.cluster.metadata import Metadata
    from kafkaclient.cluster.router import Router
    from kafkaclient.producer.accumulator.binding import Detours
    from kafkaclient.producer.wakeup import Wakeup


# --- Which brokers are dead, as far as the producer knows -----------------------------------------

_log = logging.getLogger(__name__)

BELIEVED_S = 1.0
"""A sign of life is believed for this many seconds while the answer does not come."""
_RETRY_PAUSE_S = 0.1  # the pause between two probes of a broker that cannot be reached
# A suspect is probed for this long. By then the cluster has noticed a dead broker: if the broker is
# still a member, only this client cannot reach it.
_LONGEST_SUSPICION_S = 30.0


class BrokerLiveness:
    """Probes brokers while they are suspected.

    A broker is alive, suspected (a probe is pending), or dead (a probe had no answer in time, and
    none has had since). ``wakeup`` is told when ``dead`` changes, and when no probe is pending any
    more. ``detours`` leads batches around dead brokers; None: no answer waits for a replica.
    """

    def __init__(
        self,
        router: Router,
        detours: Detours | None,
        wakeup: Wakeup,
        *,
        clock: Callable[[], float],
    ) -> None:
        self.dead: frozenset[int] = frozenset()
        self._router = router
        self._detours = detours
        self._wakeup = wakeup
        self._clock = clock
        self.suspected_at: dict[int, float] = {}
        """Since when each broker is suspected, dead or not yet."""
        self._alive_at: dict[int, float] = {}
        """When a broker that had been suspected last gave a sign of life."""
        self._probing: dict[int, asyncio.Task[None]] = {}
        self._outages = Outages(clock)
        self._closed = False

    def __repr__(self) -> str:
        return f"<BrokerLiveness dead={sorted(self.dead)} suspected={sorted(self.suspected_at)}>"

    @property
    def probe_pending(self) -> bool:
        """Whether a probe may yet be answered in time."""
        return len(self.suspected_at) > len(self.dead)

    def alive_since(self, node_id: int, since: float) -> bool:
        """Whether the broker, once suspected, gave a sign of life at ``since`` or later."""
        return self._alive_at.get(node_id, -math.inf) >= since

    def suspect(self, nodes: Iterable[int], since: float) -> None:
        """Probe these brokers, but for those that gave a sign of life at ``since`` or later."""
        if self._closed:
            return
        for node_id in nodes:
            if node_id not in self.suspected_at and not self.alive_since(node_id, since):
                self.suspected_at[node_id] = self._clock()
                self._probing[node_id] = asyncio.create_task(
                    self._run_probes(node_id), name=f"kafkaclient-sign-of-life-{node_id}"
                )

    def expire_probes(
        self, now: float, unblocked_since: float, timeout: Callable[[int], float]
    ) -> None:
        """Mark as dead each suspect whose probe has gone unanswered for ``timeout(node_id)``
        seconds of unblocked event loop."""
        for node_id, asked_at in list(self.suspected_at.items()):
            if now - max(asked_at, unblocked_since) > timeout(node_id):
                self._mark_dead(node_id)

    def confirm(self, nodes: Iterable[int], sent_at: float) -> None:
        """These brokers were needed for the answer to a request that was sent at ``sent_at``."""
        for node_id in nodes:
            if self.suspected_at.get(node_id, math.inf) <= sent_at:
                self._mark_alive(node_id)

    def close(self) -> None:
        """Send no more probes."""
        self._closed = True
        for task in self._probing.values():
            task.cancel()

    async def _run_probes(self, node_id: int) -> None:
        until = self._clock() + _LONGEST_SUSPICION_S
        while node_id in self._router.brokers and self._clock() < until:
            if await self._answers(node_id):
                self._mark_alive(node_id)
                return
            self._mark_dead(node_id)
            await asyncio.sleep(_RETRY_PAUSE_S)
        self._mark_alive(node_id, presumed=True)

    async def _answers(self, node_id: int) -> bool:
        try:
            await self._router.probe(node_id)
        except (BrokerConnectionError, RequestTimedOutError):
            return False
        except KafkaError:
            pass  # an error is a sign of life
        return True

    def _mark_dead(self, node_id: int) -> None:
        if node_id not in self.dead:
            level = logging.INFO if self._outages.note_failure(node_id) else logging.DEBUG
            text = "broker %d gives no sign of life"
            _log.log(level, text, node_id, extra=log_fields(broker=node_id))
            self._set_dead(self.dead | {node_id})

    def _mark_alive(self, node_id: int, *, presumed: bool = False) -> None:
        """``presumed``: without a sign of life."""
        task = self._probing.pop(node_id, None)
        if task is not None and task is not asyncio.current_task():
            task.cancel()
        del self.suspected_at[node_id]
        self._alive_at[node_id] = self._clock()
        if node_id in self.dead:
            if presumed or self._outages.note_success(node_id) is None:
                level, text = logging.DEBUG, "broker %d is not probed any more"
            else:
                level, text = logging.INFO, "broker %d gives signs of life again"
            _log.log(level, text, node_id, extra=log_fields(broker=node_id))
            self._set_dead(self.dead - {node_id})
        elif not self.probe_pending:
            self._wakeup.wake_at()

    def _set_dead(self, dead: frozenset[int]) -> None:
        self.dead = dead
        if self._detours is not None:
            self._detours.set_dead_brokers(dead, self._clock())
        self._wakeup.wake_at()


# --- Finds connections that lead to the wrong broker of the right cluster -------------------------
# Brokers swap addresses, a name lags behind, or a proxy leads to any broker. From Kafka 4.4 on
# the handshake finds that (KIP-1242). An older broker answers NOT_LEADER_OR_FOLLOWER to every
# batch, and metadata goes on naming the broker that was meant. Such a connection is made again,
# so that the name is looked up again.


_SUSPECTED_AFTER_S = 2.0
"""Metadata may know a new leader that long before this broker knows that it leads."""
_FORGOTTEN_AFTER_S = 30.0
"""A batch is sent again sooner than that: an older refusal belongs to an earlier time as leader."""


class Misrouting:
    """By broker, how long it has refused to lead what metadata says it leads."""

    def __init__(self, metadata: Metadata, router: Router) -> None:
        self.suspects: dict[int, tuple[float, float]] = {}
        """Broker -> the times of the first and of the latest refusal since its last success, or
        since its connection was made again."""
        self._reasons: dict[int, str] = {}
        """Broker -> why its connection was made again, until it has a success."""
        self._metadata = metadata
        self._router = router

    def refused(self, node_id: int, now: float) -> None:
        """The broker has answered NOT_LEADER_OR_FOLLOWER for a partition that it leads by the
        latest metadata."""
        since, latest = self.suspects.get(node_id, (now, now))
        if now - latest > _FORGOTTEN_AFTER_S:
            since = now
            self._reasons.pop(node_id, None)
        self.suspects[node_id] = since, now
        if now - since < _SUSPECTED_AFTER_S or self._metadata.refreshed_at <= since:
            return
        self.suspects[node_id] = now, now
        reason = (
            f"broker {node_id} refuses to lead partitions that it leads by the cluster's metadata: "
            "its address may lead to another broker (look at DNS, proxies and "
            "advertised.listeners); the connection is made again"
        )
        error = WrongBrokerError(reason)
        if node_id not in self._reasons:
            text = "a connection may lead to the wrong broker: %s"
            _log.warning(text, error, extra=log_fields(error, broker=node_id))
        self._reasons[node_id] = reason
        self._router.reconnect(node_id, error)

    def succeeded(self, node_id: int) -> None:
        """The broker has written a batch."""
        if self.suspects.pop(node_id, None) is not None:
            self._reasons.pop(node_id, None)

    def reasons(self, now: float) -> dict[int, str]:
        """Why brokers are not reached at present, whatever answers at their addresses. Without
        batches to send nothing refuses any more, and nothing is known."""
        return {
            node_id: reason
            for node_id, reason in self._reasons.items()
            if now - self.suspects[node_id][1] <= _FORGOTTEN_AFTER_S
        }

    def leave_cluster(self) -> None:
        """The client is in another cluster."""
        self.suspects.clear()
        self._reasons.clear()
