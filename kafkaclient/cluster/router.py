"""Connections by broker and purpose: where Produce requests go out and control calls are made.

Every broker has one connection for Produce and one for everything else, so that a control call
never waits behind a slow Produce; and at times a second one for Produce, at the side of the first,
and one for signs of life. Each is dialled by itself when it is first needed (``link.py``): a broker
that cannot be reached delays nobody but itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from itertools import chain
from random import Random
from typing import TYPE_CHECKING, Self, TypeVar

from kafkaclient.cluster.link import Link
from kafkaclient.cluster.race import first_connection, raise_refusal
from kafkaclient.cluster.view import Broker
from kafkaclient.errors import (
    AuthenticationError,
    BrokerConnectionError,
    KafkaError,
    ProducerClosedError,
    RequestTimedOutError,
)
from kafkaclient.net.dialer import TcpDialer
from kafkaclient.net.security import Security
from kafkaclient.wire.api_versions import ApiVersionsCall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kafkaclient.cluster.link import Purpose
    from kafkaclient.cluster.view import ClusterView
    from kafkaclient.config import ClientConfig
    from kafkaclient.net.connection import Connection
    from kafkaclient.net.dialer import Dialer
    from kafkaclient.net.meter import Meter
    from kafkaclient.wire.api import Call

__all__ = ["Router"]

T = TypeVar("T")

_log = logging.getLogger(__name__)

_PRODUCE: tuple[Purpose, ...] = ("produce", "side")

_HEAD_START_S = 0.5
"""How long one broker is dialled alone for a call that any broker can answer."""

_MOST_DIALLED = 5
"""How many known brokers such a call dials before it turns to the bootstrap servers."""

_STALLED_S = 1.0
"""A broker whose oldest request is older than this is asked last."""

_CLOSING_GRACE_S = 1.0
"""How long :meth:`Router.close` lets connections write what they have accepted."""


class Router:
    """Reaches brokers. Needs a running event loop from the first connection on.

    Uses of ``config``: ``bootstrap_servers``, ``client_id``, ``request_timeout_ms``,
    ``reconnect_backoff_ms`` and ``_max_ms``, ``socket_connection_setup_timeout_ms`` and
    ``_max_ms``, ``connections_max_idle_ms``, ``metadata_recovery_strategy``.
    """

    def __init__(
        self,
        config: ClientConfig,
        dialer: Dialer,
        *,
        clock: Callable[[], float] | None = None,
        rng: Random | None = None,
        meter: Meter | None = None,
        security: Security | None = None,
        on_connection_change: Callable[[int], None] | None = None,
    ) -> None:
        self.on_connection_change = on_connection_change
        """Called with the node id when a produce connection came up, was lost, can be written to
        again, or could not be made. A connection is remade only when it is asked for again."""
        self._config = config
        self._dialer = dialer
        self._clock = clock or _loop_time
        self._rng = rng or Random()
        self._meter = meter
        self._security = security
        self._brokers: dict[int, Broker] = {}
        self._links: dict[tuple[int, Purpose], Link] = {}
        self._bootstrap = [
            # Java numbers bootstrap servers from -1 downwards as well.
            self._new_link(Broker(-1 - n, host, port), "control")
            for n, (host, port) in enumerate(config.bootstrap_servers)
        ]
        self._retired: set[Link] = set()
        """Given up, and not yet closed."""
        self._sweeper: asyncio.TimerHandle | None = None
        self._closed = False

    @classmethod
    def secured(
        cls,
        config: ClientConfig,
        dialer: Dialer | None,
        *,
        clock: Callable[[], float],
        wall_clock: Callable[[], float] = time.time,
        rng: Random,
        meter: Meter | None = None,
        on_connection_change: Callable[[int], None] | None = None,
    ) -> Self:
        """A router with TLS and SASL as ``config`` has them; over TCP, if not by ``dialer``."""
        security = Security(config, clock=clock, wall_clock=wall_clock, rng=rng)
        dialer = dialer or TcpDialer(
            config.send_buffer_bytes, config.receive_buffer_bytes, tls=security.tls
        )
        return cls(
            config,
            dialer,
            clock=clock,
            rng=rng,
            meter=meter,
            security=security,
            on_connection_change=on_connection_change,
        )

    # --- brokers ----------------------------------------------------------------------------

    def update_brokers(self, view: ClusterView) -> None:
        """Learn the brokers' addresses; connections to a former address are closed.

        Once brokers are known, bootstrap connections are closed too; they are made again when
        no known broker can be reached (KIP-899).
        """
        self._brokers = dict(view.brokers)
        for key, link in list(self._links.items()):
            broker = self._brokers.get(link.broker.node_id)
            if broker is not None and broker[:3] != link.broker[:3]:
                where = f"{broker.host}:{broker.port}"
                self._retire(key, BrokerConnectionError(f"{link.name} has moved to {where}"))
            self._drop_unused(link)
        if self._brokers:
            for link in self._bootstrap:
                if link.connection is not None and not link.connection.in_flight:
                    link.connection.close()

    # --- Produce ----------------------------------------------------------------------------

    def knows(self, node_id: int) -> bool:
        """Whether the cluster's metadata names the broker."""
        return node_id in self._brokers

    def produce_connection(self, node_id: int, *, side: bool = False) -> Connection | None:
        """The broker's connection for Produce, ready to be sent on before the caller next awaits;
        with ``side`` the second one.

        None when it is not up: it is then being made, in the background and after the reconnect
        backoff, and ``on_connection_change`` tells how that ended. None also for a broker that
        the cluster's metadata does not know.
        """
        if self._closed or node_id not in self._brokers:
            return None
        key = node_id, "side" if side else "produce"
        return (self._links.get(key) or self._link(*key)).connect()

    def connection_error(self, node_id: int) -> KafkaError | None:
        """Why there is no produce connection: the last failure since it was last up, or that the
        cluster's metadata does not name the broker (any more)."""
        if self._brokers and node_id >= 0 and node_id not in self._brokers:
            return _not_known(node_id)
        links = (self._links.get((node_id, purpose)) for purpose in _PRODUCE)
        return next((link.error for link in links if link is not None and link.error), None)

    def close_side(self, node_id: int) -> None:
        """The broker's second connection for Produce, with nothing in flight, is needed no more."""
        self._retire((node_id, "side"))

    # --- signs of life ------------------------------------------------------------------------

    async def probe(self, node_id: int) -> None:
        """Have the broker answer something, over a connection that serves nothing else.

        Raises :class:`~kafkaclient.errors.BrokerConnectionError` when it cannot be reached,
        :class:`~kafkaclient.errors.RequestTimedOutError` when it says nothing for the request
        timeout, and another :class:`~kafkaclient.errors.KafkaError` for what it says.
        """
        link = self._links.get((node_id, "vital"))
        known = None if link is None else link.connection
        connection = await self._control_connection(node_id, False, "vital")
        if connection is known:  # a new connection has had its handshake
            await connection.call(ApiVersionsCall())

    def setup_time(self, node_id: int) -> float:
        """How long it takes to connect to the broker, in seconds: the least that it took of late,
        or the longest that any other took if it was never connected. 0.0: nothing is known."""
        known = [(link.broker.node_id, link.setup_s or 0.0) for link in self._links.values()]
        own = [setup_s for node, setup_s in known if node == node_id and setup_s]
        return min(own) if own else max([setup_s for _, setup_s in known], default=0.0)

    # --- control calls ----------------------------------------------------------------------

    async def call(
        self,
        call: Call[T],
        node_id: int | None = None,
        *,
        timeout_s: float | None = None,
        bootstrap: bool = False,
        purpose: Purpose = "control",
    ) -> T:
        """Make a control call on a control connection, and return the answer.

        Without ``node_id`` it goes to the least loaded live broker, else to whichever known
        broker or, after these, bootstrap server can be connected first; with ``bootstrap`` to
        bootstrap servers only. ``timeout_s`` (default: the request timeout) is for connecting
        and answering together. With ``node_id``, another ``purpose`` takes the call to a connection
        of its own, until :meth:`release`: answers that may take long hold nothing up there.

        Raises :class:`~kafkaclient.errors.BrokerConnectionError` when no broker could be
        reached, :class:`~kafkaclient.errors.AuthenticationError` when that is because one could
        not be agreed with on who is who, :class:`~kafkaclient.errors.RequestTimedOutError`,
        :class:`~kafkaclient.errors.UnsupportedVersionError`,
        :class:`~kafkaclient.errors.ProtocolError`,
        :class:`~kafkaclient.errors.EncodingError`, or
        :class:`~kafkaclient.errors.ProducerClosedError` after :meth:`close`.
        """
        request_timeout_s = self._config.request_timeout_ms / 1000
        limit_s = request_timeout_s if timeout_s is None else timeout_s
        whom = "any broker" if node_id is None else f"broker {node_id}"
        connection: Connection | None = None
        try:
            async with asyncio.timeout(limit_s) as limit:
                connection = await self._control_connection(node_id, bootstrap, purpose)
                whom = connection.node
                silence_s = connection.throttled_until - self._clock()
                if silence_s > 0:
                    await asyncio.sleep(silence_s)
                # An impatient caller must not cost the other callers their connection.
                answer = await connection.call(call, timeout_s=max(limit_s, request_timeout_s))
        except TimeoutError as error:
            if isinstance(error, KafkaError) or not limit.expired():
                raise
            if connection is None:
                self._raise_if_refused(node_id)
            raise RequestTimedOutError(
                f"{call.api_key.name} to {whom} was not answered within {limit_s:.3g} s"
            ) from None
        throttle_ms = getattr(answer, "throttle_ms", 0)
        if throttle_ms > 0:
            connection.throttled_until = self._clock() + throttle_ms / 1000
        return answer

    def _raise_if_refused(self, node_id: int | None) -> None:
        """Raise why there is no connection, if every broker that is being dialled has refused
        this client, or been refused; one that may yet answer leaves it open."""
        links = (*self._links.values(), *self._bootstrap)
        dialled = [link for link in links if link.attempt is not None]
        if node_id is not None:
            dialled = [link for link in dialled if link.broker.node_id == node_id]
        errors = [link.error for link in dialled if isinstance(link.error, AuthenticationError)]
        if len(errors) == len(dialled):
            raise_refusal(errors)

    async def _control_connection(
        self, node_id: int | None, bootstrap: bool, purpose: Purpose
    ) -> Connection:
        links: Iterable[Link]
        if self._closed:
            raise _closed()
        if node_id is None:
            links = self._bootstrap_links() if bootstrap else self._by_preference()
        elif node_id in self._brokers:
            links = [self._link(node_id, purpose)]
        else:
            raise _not_known(node_id)
        try:
            return await first_connection(links, _HEAD_START_S)
        except KafkaError:
            if self._closed:
                raise _closed() from None
            raise

    def release(self, purpose: Purpose) -> None:
        """Close the connections for a purpose; requests in flight on them fail."""
        for key in [key for key in self._links if key[1] == purpose]:
            self._retire(key)

    def _by_preference(self) -> Iterator[Link]:
        """All that could answer a call: the live and least loaded first, the failing last."""
        links = [self._link(node_id, "control") for node_id in self._brokers]
        self._rng.shuffle(links)
        live, stalled, fresh, failing = [], [], [], []
        for link in links:
            if link.failing:
                failing.append(link)
            elif self._is_stalled(link):
                stalled.append(link)
            elif link.connection is not None:
                live.append(link)
            else:
                fresh.append(link)
        live.sort(key=_load)
        stalled.sort(key=_load)
        lasting = self._config.metadata_recovery_strategy == "rebootstrap"
        bootstrap = self._bootstrap_links() if lasting or not links else []
        return chain(live, fresh[:_MOST_DIALLED], stalled, bootstrap, failing[:_MOST_DIALLED])

    def _bootstrap_links(self) -> list[Link]:
        """In their order, but those that fail or do not answer last."""
        return sorted(self._bootstrap, key=lambda link: link.failing or self._is_stalled(link))

    def _is_stalled(self, link: Link) -> bool:
        """Whether the broker is slow to answer on any of its connections, or asks for silence."""
        now = self._clock()
        if link.connection is not None and link.connection.throttled_until > now:
            return True
        produce = (self._links.get((link.broker.node_id, purpose)) for purpose in _PRODUCE)
        for other in (link, *produce):
            connection = None if other is None else other.connection
            if connection is not None:
                oldest = connection.oldest_sent_at
                if oldest is not None and now - oldest > _STALLED_S:
                    return True
        return False

    # --- links ------------------------------------------------------------------------------

    def _link(self, node_id: int, purpose: Purpose) -> Link:
        link = self._links.get((node_id, purpose))
        if link is None:
            link = self._new_link(self._brokers[node_id], purpose)
            self._links[node_id, purpose] = link
        return link

    def _new_link(self, broker: Broker, purpose: Purpose) -> Link:
        return Link(
            broker,
            purpose,
            self._config,
            self._dialer,
            clock=self._clock,
            rng=self._rng,
            meter=self._meter,
            on_change=self._link_changed,
            security=self._security,
        )

    def _retire(self, key: tuple[int, Purpose], error: KafkaError | None = None) -> None:
        """Close a link, if there is one; a later call makes a new one."""
        link = self._links.pop(key, None)
        if link is not None:
            self._retired.add(link)
            link.close(error)
            self._drop_unused(link)

    def _drop_unused(self, link: Link) -> None:
        """Forget a link with nothing open, if it was given up or its broker is gone."""
        if not link.unused:
            return
        self._retired.discard(link)
        key = link.broker.node_id, link.purpose
        if key[0] not in self._brokers and self._links.get(key) is link:
            del self._links[key]

    def _link_changed(self, link: Link) -> None:
        if self._closed:
            return
        self._drop_unused(link)
        if link.connection is not None and self._sweeper is None:
            self._schedule_sweep(self._config.connections_max_idle_ms / 1000)
        if link.purpose in _PRODUCE and self.on_connection_change is not None:
            try:
                self.on_connection_change(link.broker.node_id)
            except Exception:  # noqa: BLE001
                _log.exception("a listener failed on the change of %r", link)

    # --- idle connections -------------------------------------------------------------------

    def _schedule_sweep(self, delay_s: float) -> None:
        if self._config.connections_max_idle_ms >= 0:
            self._sweeper = asyncio.get_running_loop().call_later(delay_s, self._sweep)

    def _sweep(self) -> None:
        """Close connections idle for too long."""
        self._sweeper = None
        max_idle_s = self._config.connections_max_idle_ms / 1000
        now = self._clock()
        next_in_s = max_idle_s
        live = False
        for link in (*self._links.values(), *self._bootstrap):
            connection = link.connection
            if connection is None:
                continue
            idle_s = now - connection.last_used
            if idle_s >= max_idle_s and not connection.in_flight and connection.writable:
                connection.close()
                continue
            live = True
            next_in_s = min(next_in_s, max_idle_s - idle_s)
        if live:
            self._schedule_sweep(max(next_in_s, min(1.0, max_idle_s / 2), 0.001))

    # --- the end ----------------------------------------------------------------------------

    async def close(self) -> None:
        """Close every connection and end every attempt; nothing is left behind.

        Connections with nothing in flight may write for up to 1 s what they have accepted
        (acks=0); requests in flight fail at once. Calling it again does nothing.
        """
        self._closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        links = [*self._links.values(), *self._bootstrap, *self._retired]
        for link in links:
            link.close()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLOSING_GRACE_S):
                    await _all_closed(links)
        finally:
            for link in links:
                link.abort()
        await _all_closed(links)
        self._links.clear()
        self._retired.clear()


async def _all_closed(links: Iterable[Link]) -> None:
    for link in links:
        await link.wait_closed()


def _closed() -> KafkaError:
    return ProducerClosedError("the connections to the brokers have been closed")


def _not_known(node_id: int) -> KafkaError:
    return BrokerConnectionError(f"broker {node_id} is not known in the cluster's metadata")


def _load(link: Link) -> int:
    return 0 if link.connection is None else link.connection.in_flight


def _loop_time() -> float:
    return asyncio.get_running_loop().time()
