"""At most one connection to one broker for one purpose, made again on demand; and the first of
several such connections."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import TYPE_CHECKING, TypeAlias

from kafkaclient.broker_errors import ErrorCode, broker_error
from kafkaclient.cluster.backoff import ReconnectBackoff
from kafkaclient.cluster.identity import WrongBrokerError
from kafkaclient.errors import (
    AuthenticationError,
    BrokerConnectionError,
    KafkaError,
    ProtocolError,
    SaslAuthenticationError,
)
from kafkaclient.log_fields import log_fields
from kafkaclient.net.connection import Connection
from kafkaclient.time_limit import time_limit
from kafkaclient.wire.api import ApiKey
from kafkaclient.wire.api_versions import FIRST_WITH_NODE, ApiVersionsCall
from kafkaclient.wire.metadata import MetadataCall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from random import Random

    from kafkaclient.cluster.identity import Identity
    from kafkaclient.cluster.view import Broker
    from kafkaclient.config import ClientConfig
    from kafkaclient.net.dialer import Dialer
    from kafkaclient.net.pipeline import Meter
    from kafkaclient.net.security import SaslSession, Security
    from kafkaclient.wire.api_versions import ApiVersions

_log = logging.getLogger(__name__)

Purpose: TypeAlias = str
"""What a connection is for: "produce", "side" (a second one for Produce), "control", "vital"
(liveness probes), or a name that the caller chooses."""

_ANOTHER_BROKER = "is another broker, or one of another cluster"
_NOT_CONNECTED = "could not be connected"
_NOT_ANSWERED = "accepted the connection and did not answer"
_NOT_AUTHENTICATED = "and this client could not finish authentication"

_LOGINS = 3
"""How often a broker must refuse a login, over about 3 s, until it counts as refused: a broker may
refuse one for a moment, for example while it has too many connections."""

# The peer, or a name server, says at once that no Kafka broker is there.
_REFUSALS = (ConnectionRefusedError, socket.gaierror, UnicodeError)

_NEWEST_API_VERSIONS = 4
_API_VERSIONS_FALLBACKS = (3, 0)
"""The next versions of ApiVersions, if a broker drops the connection instead of answering that it
does not know the version. Azure Event Hubs does so with version 4."""


class BrokerLink:
    """Connects to a broker on demand, one attempt at a time, with the pauses of
    :class:`ReconnectBackoff`. A connection to a known broker proves that it leads to the cluster of
    ``identity``: by its handshake from Kafka 4.4 on, which costs nothing, and otherwise, or with
    SASL, by one more request.

    ``on_change`` is called when the connection comes up, is lost or becomes writable again, and
    when an attempt has failed.
    """

    def __init__(
        self,
        broker: Broker,
        purpose: Purpose,
        *,
        config: ClientConfig,
        identity: Identity,
        dialer: Dialer,
        clock: Callable[[], float],
        rng: Random,
        meter: Meter | None,
        on_change: Callable[[BrokerLink], None],
        security: Security,
    ) -> None:
        self.broker = broker
        self.purpose = purpose
        self.error: KafkaError | None = None
        """Why there is no connection: the error of the last attempt or of the last connection."""
        self.established: Connection | None = None
        """The connection after its handshake, until its end was handled: it may be closed."""
        self.api_versions: ApiVersions | None = None
        """What the broker offered on the last connection."""
        self.setup_s: float | None = None
        """How long the last successful attempt took: dialing, handshake, authentication."""
        self.refused_at: float = float("-inf")
        """When an answer of the broker was refused last, by the clock."""
        self._refused: Connection | None = None
        self._config = config
        self._identity = identity
        self._dialer = dialer
        self._clock = clock
        self._backoff = ReconnectBackoff(config, clock, rng)
        self._meter = meter
        self._on_change = on_change
        self._security = security
        self._outages = identity.outages
        self._refused_logins = 0
        self.refused_since: float | None = None
        """Since when each attempt was refused, or did not find an address; None: it is not so."""
        self._session: SaslSession | None = None
        self._lost_early = False
        self._stage = _NOT_CONNECTED
        """The step of the attempt that is under way, for the error when the time is over."""
        self.attempt: asyncio.Task[None] | None = None
        """The attempt under way. It never raises; see :attr:`connection` and :attr:`error`."""
        self._api_versions_version = _NEWEST_API_VERSIONS
        self._closed = False

    def __repr__(self) -> str:
        state = "up" if self.connection else "connecting" if self.attempt else "down"
        return f"<Link to {self.name} for {self.purpose}: {state}>"

    @property
    def name(self) -> str:
        node_id, host, port, _ = self.broker
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        return f"broker {node_id} ({where})" if node_id >= 0 else f"bootstrap server {where}"

    @property
    def connection(self) -> Connection | None:
        """The open connection after its handshake."""
        connection = self.established
        return None if connection is None or connection.closed else connection

    @property
    def failing(self) -> bool:
        """Whether the last attempt failed, or the last connection was lost early."""
        return self._backoff.failures > 0 and self.connection is None

    @property
    def unused(self) -> bool:
        """Whether no connection is open and no attempt is under way."""
        return self.established is None and (self.attempt is None or self.attempt.done())

    @property
    def pending_step(self) -> str | None:
        """What the attempt under way, or the caller of the open connection, waits for."""
        if self.attempt is not None:
            return self._late_by("")
        if self.connection is not None:
            return f"{self.name} is connected and did not answer a request"
        return None

    def connect(self) -> Connection | None:
        """The open connection. If there is none, an attempt is under way after this call."""
        connection = self.connection
        if connection is not None:
            return connection
        if self.attempt is None and not self._closed:
            self.attempt = asyncio.create_task(
                self._run_attempt(), name=f"connect to {self.name} for {self.purpose}"
            )
        return None

    def close(self, error: KafkaError | None = None) -> None:
        """End the attempt, and close the connection as :meth:`Connection.close` does."""
        self._closed = True
        if self.attempt is not None:
            self.attempt.add_done_callback(lambda _: self._on_change(self))
            self.attempt.cancel()
        if self.established is not None:
            self.established.close(error)

    def refuse(self, error: KafkaError) -> None:
        """Close the connection: the broker's answer cannot be used. Counts as a failed attempt."""
        connection = self.established
        self.refused_at = self._clock()
        if connection is not None:
            self._refused = connection
            connection.close(error)
            self._connection_closed(connection, error)
            self._lost_early = False
            if not self._backoff.failures:
                self._backoff.attempt_failed(error)

    def abort(self) -> None:
        """Like :meth:`close`, but drop bytes that are not written yet."""
        self.close()
        if self.established is not None:
            self.established.abort()

    async def wait_closed(self) -> None:
        """Wait until the attempt and the connection have ended, after :meth:`close`."""
        if self.attempt is not None:
            await asyncio.wait({self.attempt})
        for connection in (self.established, self._refused):
            if connection is not None:
                await connection.wait_closed()

    async def _run_attempt(self) -> None:
        try:
            await asyncio.sleep(self._backoff.pause_s)
            began = self._clock()
            self.established = await self._connect_in_time()
        except KafkaError as error:
            self.error = error
            self._attempt_failed(error)
        else:
            self._backoff.connected()
            self.api_versions = self.established.api_versions
            self.setup_s = self._clock() - began
            self.error = None
            self._refused_logins = 0
            self._log_success()
        finally:
            self.attempt = None
        self._on_change(self)

    def _attempt_failed(self, error: KafkaError) -> None:
        self._backoff.attempt_failed(error)
        refused = isinstance(error.__cause__, _REFUSALS)
        self.refused_since = (self.refused_since or self._clock()) if refused else None
        if isinstance(error, SaslAuthenticationError) and error.code is not None:
            self._refused_logins += 1
            error.retriable = self._refused_logins < _LOGINS
        # The error of a bootstrap server is logged or raised by those who ask any server.
        denied = isinstance(error, AuthenticationError) and self.broker.node_id >= 0
        if (denied and not error.retriable) or isinstance(error, WrongBrokerError):
            self._log_failure("denied" if denied else "wrong", logging.ERROR, error)
        else:
            self._log_failure("failed", logging.INFO, error)

    def _log_failure(self, kind: str, level: int, error: KafkaError) -> None:
        if not self._outages.note_failure((*self.broker[1:3], kind)):
            level = logging.DEBUG
        text = "%s (the connection for %s)"
        _log.log(level, text, error, self.purpose, extra=self._log_fields(error))

    def _log_success(self) -> None:
        address, kinds = self.broker[1:3], ("failed", "denied", "wrong")
        self._outages.note_success((*address, "lost"))
        failed_s = max(self._outages.note_success((*address, kind)) or 0.0 for kind in kinds)
        if failed_s:
            text = "%s can be connected again, %.1f s after that first failed"
            _log.info(text, self.name, failed_s, extra=self._log_fields())

    def _log_fields(self, error: KafkaError | None = None) -> dict[str, object]:
        client_id = self._config.client_id
        return log_fields(error, broker=self.broker.node_id, client_id=client_id)

    async def _connect_in_time(self) -> Connection:
        """A new connection after its handshake. Every error is a :class:`KafkaError`."""
        self._stage = _NOT_CONNECTED
        limit_s = self._backoff.setup_timeout_s()
        try:
            async with time_limit(limit_s):
                connection = await self._dial_and_shake_hands()
                await self._authenticate(connection)
                try:
                    await self._prove(connection)
                except BaseException:
                    connection.abort()
                    raise
                return connection
        except KafkaError:
            raise
        except TimeoutError as error:
            raise BrokerConnectionError(
                self._late_by(f" within {limit_s:.3g} s (socket.connection.setup.timeout.ms)")
            ) from error
        except (OSError, UnicodeError) as error:  # UnicodeError: no host can have this name
            why = str(getattr(error, "strerror", None) or error)
            why = why.removesuffix(f" ({self.broker.host})")
            raise BrokerConnectionError(f"cannot reach {self.name}: {why}") from error
        except Exception as error:
            _log.exception(
                "connecting to %s failed in an unexpected way", self.name, extra=self._log_fields()
            )
            raise BrokerConnectionError(
                f"{self.name} could not be connected: {type(error).__name__}: {error}"
            ) from error

    def _late_by(self, limit: str) -> str:
        advice = ""
        if self._stage == _NOT_CONNECTED:
            advice = "; check that it is up, and its port open from here"
        elif self._stage == _NOT_ANSWERED:
            tls = "expects TLS" if self._security.tls is None else "has no TLS"
            advice = (
                "; perhaps it is not a Kafka broker, its listener "
                f"{tls} (see security.protocol), or it is paused or overloaded"
            )
        return f"{self.name} {self._stage}{limit}{advice}"

    async def _dial_and_shake_hands(self) -> Connection:
        cluster_id = self._identity.cluster_id if self.broker.node_id >= 0 else None
        first = self._api_versions_version
        if cluster_id is not None and self._identity.newest_api_versions >= FIRST_WITH_NODE:
            first = max(first, FIRST_WITH_NODE)
        for version in (first, *(v for v in _API_VERSIONS_FALLBACKS if v < first)):
            _, connection = await self._dialer.dial(
                self.broker.host, self.broker.port, self._new_connection
            )
            try:
                await connection.handshake(version, cluster_id=cluster_id)
            except (BrokerConnectionError, ProtocolError) as error:
                connection.abort()
                if not self._backoff.failed_attempts:
                    _, host, port, _ = self.broker
                    await self._security.explain_silence(self.name, host, port, self._dialer)
                if version == _API_VERSIONS_FALLBACKS[-1] or isinstance(error, ProtocolError):
                    raise
            except BaseException as error:
                connection.abort()
                if (
                    cluster_id is not None
                    and getattr(error, "code", 0) == ErrorCode.REBOOTSTRAP_REQUIRED
                ):
                    raise self._identity.wrong_broker(self.name, _ANOTHER_BROKER) from error
                raise
            else:
                if connection.api_versions_version is not None:
                    self._api_versions_version = max(version, connection.api_versions_version)
                return connection
        raise AssertionError("the last version returns or raises")

    async def _authenticate(self, connection: Connection) -> None:
        self._stage = _NOT_AUTHENTICATED
        try:
            if self._lost_early:
                self._lost_early = False
                await self._security.explain_loss(connection)
            if awaited := self._security.awaited:
                self._stage = f"needs {awaited}"
            mechanism = await self._security.mechanism(self.broker.host)
            self._stage = _NOT_AUTHENTICATED
            self._session = await self._security.authenticate(
                connection, mechanism, self.broker.host
            )
        except BaseException as error:
            connection.close(error if isinstance(error, KafkaError) else None)
            connection.abort()
            raise

    async def _prove(self, connection: Connection) -> None:
        """Raise WrongBrokerError unless the broker is one of the client's cluster."""
        versions, cluster_id = connection.api_versions, self._identity.cluster_id
        assert versions is not None, "a connection has had its handshake"
        newest = versions.ranges.get(ApiKey.API_VERSIONS, (0, 0))[1]
        self._identity.newest_api_versions = newest
        # Before the login, Kafka 4.4 does not look at what the handshake names.
        by_handshake = self._session is None and (
            (connection.api_versions_version or 0) >= FIRST_WITH_NODE
        )
        if self.broker.node_id < 0 or cluster_id is None or by_handshake:
            return
        self._stage = _NOT_ANSWERED
        what = _ANOTHER_BROKER
        if newest >= FIRST_WITH_NODE:
            again = ApiVersionsCall(cluster_id=cluster_id, node_id=self.broker.node_id)
            code = (await connection.call(again)).error_code
        else:
            result = await connection.call(MetadataCall((), allow_auto_topic_creation=False))
            code = result.error_code
            if not code and result.cluster_id != cluster_id:  # a proof names the cluster
                what = f"is a broker of cluster {result.cluster_id!r}"
                code = ErrorCode.REBOOTSTRAP_REQUIRED
        if code == ErrorCode.REBOOTSTRAP_REQUIRED:
            raise self._identity.wrong_broker(self.name, what)
        if code:
            raise broker_error(code, f"connecting to {self.name}")

    def _new_connection(self) -> Connection:
        # Dialers call this once TCP is connected, before TLS.
        self._stage, self.refused_since = _NOT_ANSWERED, None
        return Connection(
            node=self.name,
            node_id=self.broker.node_id,
            client_id=self._config.client_id,
            request_timeout_s=self._config.request_timeout_ms / 1000,
            clock=self._clock,
            on_close=self._connection_closed,
            on_writable=self._connection_writable,
            meter=self._meter,
        )

    def _connection_closed(self, connection: Connection, error: KafkaError | None) -> None:
        if connection is not self.established:
            return  # lost during its handshake: the attempt reports the error
        self.established = None
        if self._session is not None:
            self._session.close()
            self._session = None
        self.error = error
        if self._backoff.connection_ended(error):
            self._lost_early = isinstance(error, BrokerConnectionError)
        if error is not None and not self._closed:
            self._log_failure("lost", logging.INFO, error)
        self._on_change(self)

    def _connection_writable(self, connection: Connection) -> None:
        if connection is self.established:
            self._on_change(self)


async def first_connection(
    links: Iterable[BrokerLink], head_start_s: float
) -> tuple[BrokerLink, Connection]:
    """The first link that is connected, with its connection. The links start to dial in their
    order, each ``head_start_s`` after the previous one.

    Raises AuthenticationError or another error that is not retriable if that is the reason, and
    otherwise BrokerConnectionError with all errors.
    """
    tried: list[BrokerLink] = []
    attempts: set[asyncio.Task[None]] = set()
    for link in links:
        connection = link.connect()
        if connection is not None:
            return link, connection
        if link.attempt is not None:
            tried.append(link)
            attempts.add(link.attempt)
            if up := await _first_up(tried, attempts, head_start_s):
                return up
    while attempts:
        if up := await _first_up(tried, attempts, None):
            return up
    errors = [link.error for link in tried if link.error is not None]
    raise_refusal(errors)
    if errors and not any(error.retriable for error in errors):
        raise errors[0]
    if len(errors) == 1:
        raise BrokerConnectionError(str(errors[0]))
    raise BrokerConnectionError(
        f"no broker could be reached; tried {len(tried)}: {'; '.join(map(str, errors))}"
    )


def raise_refusal(errors: Sequence[KafkaError]) -> None:
    """Raise the first AuthenticationError, if there is one, because a retry rarely helps."""
    for error in errors:
        if isinstance(error, AuthenticationError):
            raise error.with_traceback(None)


async def _first_up(
    links: Iterable[BrokerLink], attempts: set[asyncio.Task[None]], timeout_s: float | None
) -> tuple[BrokerLink, Connection] | None:
    """Wait until an attempt has ended, and remove it from the set; a link that is connected, and
    its connection, if there is one."""
    done, _ = await asyncio.wait(attempts, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    attempts -= done
    for link in links:
        if (connection := link.connection) is not None:
            return link, connection
    return None
