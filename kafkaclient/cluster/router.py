"""Connections by broker and purpose.

A broker has one connection for Produce and one for other requests, so that these never wait behind
a slow Produce request. A broker can have a second Produce connection, and one for liveness probes.
Each connection is made independently when it is first needed, so that an unreachable broker does
not delay requests to other brokers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import defaultdict
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

from kafkaclient.broker_errors import ErrorCode
from kafkaclient.cluster.identity import (
    CONFIRM_S,
    HEAD_START_S,
    MAX_DIALED,
    Identity,
    Rebootstrap,
    differs,
    is_enabled,
)
from kafkaclient.cluster.link import BrokerLink, first_connection, raise_refusal
from kafkaclient.cluster.view import Broker
from kafkaclient.cluster.waits import Outages
from kafkaclient.errors import (
    AuthenticationError,
    BrokerConnectionError,
    KafkaError,
    ProducerClosedError,
    RequestTimedOutError,
    UnsupportedVersionError,
)
from kafkaclient.log_fields import log_fields
from kafkaclient.net.dialer import TcpDialer
from kafkaclient.net.security import Security
from kafkaclient.time_limit import time_limit
from kafkaclient.wire.api_versions import ApiVersionsCall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from random import Random

    from kafkaclient.cluster.link import Purpose
    from kafkaclient.cluster.view import ClusterView
    from kafkaclient.config import ClientConfig
    from kafkaclient.net.connection import Connection
    from kafkaclient.net.dialer import Dialer
    from kafkaclient.net.pipeline import Meter
    from kafkaclient.wire.api import ApiKey, Call, MetadataResult

T = TypeVar("T")

_log = logging.getLogger(__name__)

_PRODUCE: tuple[Purpose, ...] = ("produce", "side")

_STALLED_S = 1.0  # a broker is stalled if its oldest request is older than this
_CLOSED = "the connections to the brokers have been closed"
_CLOSING_GRACE_S = 1.0  # how long close() lets connections write accepted bytes


class Router:
    """Connects to brokers. It needs a running event loop from the first connection on."""

    def __init__(
        self,
        config: ClientConfig,
        dialer: Dialer | None = None,
        *,
        clock: Callable[[], float],
        wall_clock: Callable[[], float] = time.time,
        rng: Random,
        meter: Meter | None = None,
        on_connection_change: Callable[[int], None] | None = None,
    ) -> None:
        """``dialer`` is for tests; without it connections are TCP, with TLS if configured."""
        self.on_connection_change = on_connection_change
        """Called with the node id when a Produce connection is made, is lost or becomes writable
        again, and when an attempt has failed. The next attempt waits for the next call of
        :meth:`produce_connection`."""
        self._config = config
        self._clock = clock
        self._rng = rng
        security = Security(config, clock=clock, wall_clock=wall_clock, rng=rng)
        self.missing_token: Callable[[], str | None] = security.missing_token
        self.identity: Identity = Identity(Outages(clock))
        """The cluster that the client is in. :meth:`metadata` changes it."""
        self.rebootstrap: Rebootstrap = Rebootstrap(config)
        self._new_link = partial(
            BrokerLink,
            config=config,
            identity=self.identity,
            dialer=dialer
            or TcpDialer(
                config.send_buffer_bytes,
                config.receive_buffer_bytes,
                tls=security.tls,
                server_name=config.ssl_endpoint_hostname,
            ),
            clock=clock,
            rng=rng,
            meter=meter,
            on_change=self._link_changed,
            security=security,
        )
        self.brokers: dict[int, Broker] = {}
        """The brokers that the cluster's metadata names, by their ids. Read-only."""
        self._links: dict[tuple[int, Purpose], BrokerLink] = {}
        self._bootstrap = [
            # Java numbers bootstrap servers from -1 downwards as well.
            self._new_link(Broker(-1 - n, host, port), "control")
            for n, (host, port) in enumerate(config.bootstrap_servers)
        ]
        self._retired: set[BrokerLink] = set()
        """Links that are being closed."""
        self._sweeper: asyncio.TimerHandle | None = None
        self._closed = False

    def update_brokers(self, view: ClusterView) -> None:
        """Take the brokers' addresses, and close connections to former addresses.

        Idle connections to bootstrap servers are closed, too, if brokers are known.
        """
        self.brokers = dict(view.brokers)
        for key, link in list(self._links.items()):
            broker = self.brokers.get(link.broker.node_id)
            if broker is not None and broker[:3] != link.broker[:3]:
                where = f"{broker.host}:{broker.port}"
                self._retire(key, BrokerConnectionError(f"{link.name} has moved to {where}"))
            self._drop_unused(link)
        if self.brokers:
            for link in self._bootstrap:
                if link.connection is not None and not link.connection.in_flight:
                    link.connection.close()

    # --- Produce ----------------------------------------------------------------------------

    def produce_connection(self, node_id: int, *, side: bool = False) -> Connection | None:
        """The broker's open Produce connection; with ``side`` the second one. It can be used until
        it is ``closed``, or its broker leaves :attr:`brokers`.

        None if there is none. An attempt is then under way, after the reconnect backoff;
        ``on_connection_change`` is called at its end. None without an attempt for a broker that
        is not in the metadata.
        """
        key = node_id, "side" if side else "produce"
        link = self._links.get(key)
        if self._closed or node_id not in self.brokers:
            return None
        if link is not None:
            connection = link.established
            if connection is not None and not connection.closed:
                return connection
        return (link or self._link(*key)).connect()

    def connection_error(self, node_id: int) -> KafkaError | None:
        """Why there is no Produce connection: the last failure, or the broker is not in the
        cluster's metadata.
        """
        if self.brokers and node_id >= 0 and node_id not in self.brokers:
            return _not_known(node_id)
        links = (self._links.get((node_id, purpose)) for purpose in _PRODUCE)
        return next((link.error for link in links if link is not None and link.error), None)

    def pending_step(self) -> str | None:
        """What the bootstrap servers have not done yet; None if none of them was tried."""
        return "; ".join(filter(None, (link.pending_step for link in self._bootstrap))) or None

    def refused_s(self) -> float:
        """For how many seconds all bootstrap servers have refused connections, or their names could
        not be resolved; 0.0 if one of them failed in another way, or has not failed."""
        since = [link.refused_since for link in self._bootstrap if link.refused_since is not None]
        return self._clock() - max(since) if len(since) == len(self._bootstrap) else 0.0

    def close_side(self, node_id: int) -> None:
        """Close the broker's second Produce connection, which has no request in flight."""
        self._retire((node_id, "side"))

    def reconnect(self, node_id: int, error: KafkaError) -> None:
        """Close the broker's Produce connections; the next ones look up its name again."""
        for purpose in _PRODUCE:
            if (link := self._links.get((node_id, purpose))) is not None:
                link.refuse(error)

    async def probe(self, node_id: int) -> None:
        """Wait for the broker's answer to a request, on a connection for probes only.

        Raises BrokerConnectionError if it cannot be reached, RequestTimedOutError if it does not
        answer within the request timeout, and another KafkaError if it answers with an error.
        """
        link = self._links.get((node_id, "vital"))
        known = None if link is None else link.connection
        _, connection = await self._connected(self._links_to(node_id, "vital"))
        if connection is known:  # a new connection has had its handshake
            await connection.call(ApiVersionsCall())

    def setup_time(self, node_id: int) -> float:
        """How long it takes to connect to the broker, in seconds: the shortest of its connections'
        last attempts, or the longest of other brokers if it was never connected. 0.0 if unknown.
        """
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
        purpose: Purpose = "control",
    ) -> T:
        """Make a control call, and return the answer.

        Without ``node_id`` it goes to the least loaded connected broker, otherwise to the known
        broker, or before brokers are known the bootstrap server, that can be connected first.
        ``timeout_s`` (default: the request timeout) is for connecting and answering together. With
        ``node_id``, another ``purpose`` has its own connection until :meth:`release`, so that slow
        answers delay no other call.

        Raises BrokerConnectionError if no broker could be reached, AuthenticationError if failed
        authentication is the reason, RequestTimedOutError, UnsupportedVersionError, ProtocolError,
        EncodingError, or ProducerClosedError after :meth:`close`.
        """
        links: Iterable[BrokerLink]
        if node_id is None:
            # A bootstrap server may be of another cluster: only Metadata requests find that out.
            links = self._links_for_any_broker(bootstrap=not self.brokers)
        else:
            links = self._links_to(node_id, purpose)
        _, answer = await self._exchange(call, links, node_id, timeout_s)
        return answer

    async def call_any(self, call: Call[T], node_id: int | None) -> tuple[int, T]:
        """Make a call that any known broker can answer: this one, if it is known. Returns the id of
        the broker, and its answer. Raises as :meth:`call` does."""
        if node_id is not None and node_id in self.brokers:
            links: Iterable[BrokerLink] = self._links_to(node_id, "control")
        else:
            links = self._links_for_any_broker(bootstrap=False)
        link, answer = await self._exchange(call, links, None, None)
        return link.broker.node_id, answer

    def may_offer(self, api_key: ApiKey) -> bool:
        """Whether a server offers the API, of those that this client has been connected to; True
        before the first connection."""
        known = [link.api_versions for link in self._all_links() if link.api_versions is not None]
        return not known or any(api_key in versions.ranges for versions in known)

    async def metadata(
        self, call: Call[MetadataResult], *, timeout_s: float, failures: int
    ) -> MetadataResult:
        """Make a Metadata request, by the rules of identity.py. After ``failures`` failed requests
        in a row it may go to the bootstrap servers only (KIP-1102).

        If the client moves to another cluster by it, every connection to the former one is closed
        when this returns. Raises as :meth:`call` does, and the broker's error.
        """
        forced = self.rebootstrap.take_turn(self._clock(), failures, self.brokers)
        links = self._bootstrap_links() if forced else self._links_for_any_broker(bootstrap=True)
        link, result = await self._exchange(call, links, None, timeout_s)
        known = link.broker.node_id >= 0
        problem = self.identity.problem(result, link.name, known=known)
        moves = differs(self.identity.cluster_id, result.cluster_id)
        if problem is None and moves and not forced and await self._is_reachable():
            what = f"is a server of cluster {result.cluster_id!r}"
            problem = self.identity.wrong_broker(link.name, what)
        if problem is not None:
            if result.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
                self.rebootstrap.require()
                for each in list(self._links.values()):
                    if each.broker.node_id == link.broker.node_id and each is not link:
                        each.refuse(problem)
            link.refuse(problem)
            raise problem
        self.rebootstrap.required = False
        if moves:
            await self._leave(link, result.cluster_id)
        if result.cluster_id is not None:
            self.identity.cluster_id = result.cluster_id
        return result

    async def _is_reachable(self) -> bool:
        """Whether a known broker can be connected, and proves to be of the client's cluster."""
        links = [self._link(node_id, "control") for node_id in self.brokers]
        self._rng.shuffle(links)
        try:
            async with time_limit(CONFIRM_S):
                await first_connection(links[:MAX_DIALED], 0.0)
        except (KafkaError, TimeoutError):
            return False
        return True

    async def _leave(self, asked: BrokerLink, cluster_id: str | None) -> None:
        """Forget the brokers, and wait until all connections but ``asked`` are closed."""
        error = BrokerConnectionError(
            f"this client has moved from cluster {self.identity.cluster_id!r} to {cluster_id!r}"
        )
        self.brokers = {}
        links = [*self._links.values(), *self._retired]
        for key in list(self._links):
            self._retire(key, error)
        for link in self._bootstrap:
            if link is not asked and link.connection is not None:
                link.connection.close(error)
        await _all_closed(links, _CLOSING_GRACE_S)

    async def _exchange(
        self,
        call: Call[T],
        links: Iterable[BrokerLink],
        node_id: int | None,
        timeout_s: float | None,
    ) -> tuple[BrokerLink, T]:
        """The answer to the call, and the link that it came by: of these the one that is connected
        first."""
        request_timeout_s = self._config.request_timeout_ms / 1000
        limit_s = request_timeout_s if timeout_s is None else timeout_s
        whom = "any broker" if node_id is None else f"broker {node_id}"
        link: BrokerLink | None = None
        try:
            async with time_limit(limit_s) as limit:
                link, connection = await self._connected(links)
                whom = connection.node
                silence_s = connection.throttled_until - self._clock()
                if silence_s > 0:
                    await asyncio.sleep(silence_s)
                # A short timeout of one caller must not close the connection for other callers.
                answer = await connection.call(call, timeout_s=max(limit_s, request_timeout_s))
        except UnsupportedVersionError as error:
            if link is not None and link.broker.node_id < 0:
                link.refuse(error)  # another server is asked next
            raise
        except TimeoutError as error:
            if isinstance(error, KafkaError) or not limit.expired():
                raise
            why = ""
            if link is None:
                dialed = self._dialed(node_id)
                _raise_if_all_refused(dialed)
                why = "".join(f": {link.pending_step}" for link in dialed[:1])
            raise RequestTimedOutError(
                f"{call.api_key.name} to {whom} was not answered within {limit_s:.3g} s{why}"
            ) from None
        throttle_ms = getattr(answer, "throttle_ms", 0)
        if throttle_ms > 0:
            connection.throttled_until = self._clock() + throttle_ms / 1000
        return link, answer

    def _dialed(self, node_id: int | None) -> list[BrokerLink]:
        """The links that are being connected, of all brokers or of one."""
        dialed = (link for link in self._all_links() if link.attempt is not None)
        return [link for link in dialed if node_id in (None, link.broker.node_id)]

    def _all_links(self) -> list[BrokerLink]:
        return [*self._links.values(), *self._bootstrap]

    def _links_to(self, node_id: int, purpose: Purpose) -> list[BrokerLink]:
        if self._closed:
            raise ProducerClosedError(_CLOSED)
        if node_id not in self.brokers:
            raise _not_known(node_id)
        return [self._link(node_id, purpose)]

    async def _connected(self, links: Iterable[BrokerLink]) -> tuple[BrokerLink, Connection]:
        if self._closed:
            raise ProducerClosedError(_CLOSED)
        try:
            return await first_connection(links, HEAD_START_S)
        except KafkaError:
            if self._closed:
                raise ProducerClosedError(_CLOSED) from None
            raise

    def release(self, purpose: Purpose) -> None:
        """Close the connections for a purpose. Their requests in flight fail."""
        for key in [key for key in self._links if key[1] == purpose]:
            self._retire(key)

    def _links_for_any_broker(self, *, bootstrap: bool) -> Iterator[BrokerLink]:
        """The links for a call that any broker can answer, in the order of dialing.

        Connected brokers come first, the least loaded before others. With ``bootstrap``, bootstrap
        servers come after all known brokers that have not failed.
        """
        links = [self._link(node_id, "control") for node_id in self.brokers]
        self._rng.shuffle(links)
        links.sort(key=lambda link: link.connection.in_flight if link.connection else 0)
        by_state: defaultdict[str, list[BrokerLink]] = defaultdict(list)
        for link in links:
            state = "new" if link.connection is None else "connected"
            state = "stalled" if self._is_stalled(link) else state
            by_state["failing" if link.failing else state].append(link)
        usable = bootstrap and (is_enabled(self._config) or not links)
        return chain(
            by_state["connected"],
            by_state["new"][:MAX_DIALED],
            by_state["stalled"],
            self._bootstrap_links() if usable else [],
            by_state["failing"][:MAX_DIALED],
        )

    def _bootstrap_links(self) -> list[BrokerLink]:
        """In their order, except that failing and stalled ones come last, and before them those
        whose answers were refused, the latest last."""
        return sorted(
            self._bootstrap,
            key=lambda link: (link.failing or self._is_stalled(link), link.refused_at),
        )

    def _is_stalled(self, link: BrokerLink) -> bool:
        """Whether the broker is slow on any of its connections, or throttles this client."""
        now = self._clock()
        if link.connection is not None and link.connection.throttled_until > now:
            return True
        produce = [self._links.get((link.broker.node_id, purpose)) for purpose in _PRODUCE]
        connections = [other.connection for other in (link, *produce) if other is not None]
        oldest = [each.oldest_sent_at for each in connections if each is not None]
        return any(sent_at is not None and now - sent_at > _STALLED_S for sent_at in oldest)

    def _link(self, node_id: int, purpose: Purpose) -> BrokerLink:
        link = self._links.get((node_id, purpose))
        if link is None:
            link = self._new_link(self.brokers[node_id], purpose)
            self._links[node_id, purpose] = link
        return link

    def _retire(self, key: tuple[int, Purpose], error: KafkaError | None = None) -> None:
        """Close the link, if there is one. A later call makes a new link."""
        link = self._links.pop(key, None)
        if link is not None:
            self._retired.add(link)
            link.close(error)
            self._drop_unused(link)

    def _drop_unused(self, link: BrokerLink) -> None:
        """Forget an unused link that is retired, or whose broker is no longer known."""
        if not link.unused:
            return
        self._retired.discard(link)
        key = link.broker.node_id, link.purpose
        if key[0] not in self.brokers and self._links.get(key) is link:
            del self._links[key]

    def _link_changed(self, link: BrokerLink) -> None:
        if self._closed:
            return
        self._drop_unused(link)
        if link.connection is not None and self._sweeper is None:
            self._schedule_sweep(self._config.connections_max_idle_ms / 1000)
        if link.purpose in _PRODUCE and self.on_connection_change is not None:
            try:
                self.on_connection_change(link.broker.node_id)
            except Exception:  # noqa: BLE001
                _log.exception(
                    "a listener failed on the change of %r",
                    link,
                    extra=log_fields(broker=link.broker.node_id, client_id=self._config.client_id),
                )

    def _schedule_sweep(self, delay_s: float) -> None:
        if self._config.connections_max_idle_ms >= 0:
            self._sweeper = asyncio.get_running_loop().call_later(delay_s, self._sweep)

    def _sweep(self) -> None:
        """Close connections that were idle for ``connections.max.idle.ms``."""
        self._sweeper = None
        max_idle_s = self._config.connections_max_idle_ms / 1000
        now = self._clock()
        left_s = []
        for link in self._all_links():
            connection = link.connection
            if connection is None:
                continue
            idle_s = now - connection.last_used
            if idle_s >= max_idle_s and not connection.in_flight and connection.writable:
                connection.close()
            else:
                left_s.append(min(max_idle_s, max_idle_s - idle_s))
        if left_s:
            self._schedule_sweep(max(min(left_s), min(1.0, max_idle_s / 2), 0.001))

    async def close(self, grace_s: float = _CLOSING_GRACE_S) -> None:
        """Close all connections and end all attempts.

        Requests in flight fail at once. Connections without any may write accepted bytes (acks=0)
        for up to ``grace_s`` seconds. An attempt may wait for a token provider, which is the
        application's code: one that ignores its cancellation is left alone after ``grace_s``. A
        second call does nothing.
        """
        self._closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        links = [*self._all_links(), *self._retired]
        for link in links:
            link.close()
        try:
            await _all_closed(links, grace_s)
        finally:
            for link in links:
                link.abort()
        await _all_closed(links, grace_s)
        self._links.clear()
        self._retired.clear()


async def _all_closed(links: Iterable[BrokerLink], seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            for link in links:
                await link.wait_closed()


def _not_known(node_id: int) -> KafkaError:
    return BrokerConnectionError(f"broker {node_id} is not known in the cluster's metadata")


def _raise_if_all_refused(links: Sequence[BrokerLink]) -> None:
    """Raise the AuthenticationError of a broker that is being dialed, if authentication has failed
    for all of them."""
    errors = [link.error for link in links if isinstance(link.error, AuthenticationError)]
    if len(errors) == len(links):
        raise_refusal(errors)
