"""The way to one broker for one purpose: at most one connection, made again on demand."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, TypeAlias

from kafkaclient.cluster.backoff import backoff_s
from kafkaclient.errors import (
    AuthenticationError,
    BrokerConnectionError,
    KafkaError,
    ProtocolError,
)
from kafkaclient.net.connection import Connection

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from kafkaclient.cluster.view import Broker
    from kafkaclient.config import ClientConfig
    from kafkaclient.net.authentication import Session
    from kafkaclient.net.dialer import Dialer
    from kafkaclient.net.meter import Meter
    from kafkaclient.net.security import Security

__all__ = ["Link", "Purpose"]

_log = logging.getLogger(__name__)

Purpose: TypeAlias = str
"""What a connection is for: "produce", "side" (beside the former), "control", "vital" (signs of
life), or a name of the caller's."""

_NEWEST_API_VERSIONS = 4
_API_VERSIONS_FALLBACKS = (3, 0)
"""What to ask with when a broker drops the connection on ApiVersions instead of answering that it
does not know the version; Azure Event Hubs does so on version 4."""

_REFUSED_PAUSES = 10.0
"""How many times longer than after other failures the pauses may get after failed authentication:
it does not mend itself soon, and servers lock accounts after many attempts."""


class Link:
    """Dials a broker when asked, and remembers how that went.

    One attempt is under way at a time. After a failure the next attempt waits for the reconnect
    backoff (``reconnect.backoff.ms`` to ``.max.ms``), and has more time to succeed
    (``socket.connection.setup.timeout.ms`` to ``.max.ms``, KIP-601). The backoff
    starts over when a connection ends that was closed here, or that had served for at least
    ``reconnect.backoff.max.ms``; connecting alone does not reset it. ``on_change`` is called when
    the connection comes up, is lost, becomes writable again, and when an attempt has failed.
    """

    def __init__(
        self,
        broker: Broker,
        purpose: Purpose,
        config: ClientConfig,
        dialer: Dialer,
        *,
        clock: Callable[[], float],
        rng: Random,
        meter: Meter | None,
        on_change: Callable[[Link], None],
        security: Security | None = None,
    ) -> None:
        self.broker = broker
        self.purpose = purpose
        self.error: KafkaError | None = None
        """Why there is no connection: the last attempt's error, or how the last one was lost."""
        self.setup_s: float | None = None
        """How long it took to set the last connection up: dialling, handshake, authentication."""
        self._config = config
        self._dialer = dialer
        self._clock = clock
        self._rng = rng
        self._meter = meter
        self._on_change = on_change
        self._security = security
        self._session: Session | None = None
        self._lost_early = False
        self._authenticating = False
        self._connection: Connection | None = None
        self._attempt: asyncio.Task[None] | None = None
        self._failures_in_a_row = 0
        self._setup_failures = 0
        self._not_before = 0.0
        self._up_since = 0.0
        self._api_versions_version = _NEWEST_API_VERSIONS
        self._closed = False

    def __repr__(self) -> str:
        state = "up" if self.connection else "connecting" if self._attempt else "down"
        return f"<Link to {self.name} for {self.purpose}: {state}>"

    @property
    def name(self) -> str:
        node_id, host, port, _ = self.broker
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        return f"broker {node_id} ({where})" if node_id >= 0 else f"bootstrap server {where}"

    @property
    def connection(self) -> Connection | None:
        """The connection, if it is up and has had its handshake."""
        connection = self._connection
        return None if connection is None or connection.closed else connection

    @property
    def attempt(self) -> asyncio.Task[None] | None:
        """The attempt under way. It never fails; see :attr:`connection` and :attr:`error`."""
        return self._attempt

    @property
    def failing(self) -> bool:
        """True when the last attempt failed, or the last connection did not live long."""
        return self._failures_in_a_row > 0 and self.connection is None

    @property
    def unused(self) -> bool:
        """True when nothing of it is open or under way."""
        return self._connection is None and (self._attempt is None or self._attempt.done())

    def connect(self) -> Connection | None:
        """The live connection; without one, None, and an attempt is under way."""
        connection = self._connection
        if connection is not None and not connection.closed:
            return connection
        if self._attempt is None and not self._closed:
            self._attempt = asyncio.create_task(
                self._run_attempt(), name=f"connect to {self.name} for {self.purpose}"
            )
        return None

    def close(self, error: KafkaError | None = None) -> None:
        """Stop dialling and close the connection, as :meth:`Connection.close` does."""
        self._closed = True
        if self._attempt is not None:
            self._attempt.add_done_callback(lambda _: self._on_change(self))
            self._attempt.cancel()
        if self._connection is not None:
            self._connection.close(error)

    def abort(self) -> None:
        """Like :meth:`close`, without waiting for bytes that are still to be written."""
        self.close()
        if self._connection is not None:
            self._connection.abort()

    async def wait_closed(self) -> None:
        """Wait until nothing is open or under way any more, after :meth:`close`."""
        if self._attempt is not None:
            await asyncio.wait({self._attempt})
        if self._connection is not None:
            await self._connection.wait_closed()

    async def _run_attempt(self) -> None:
        try:
            await asyncio.sleep(max(0.0, self._not_before - self._clock()))
            began = self._clock()
            self._connection = await self._connect_in_time()
        except KafkaError as error:
            self._failed(error)
            self._setup_failures += 1
            news = isinstance(error, AuthenticationError) and self._failures_in_a_row == 1
            level = logging.ERROR if news else logging.INFO
            _log.log(level, "%s (failure %d in a row)", error, self._failures_in_a_row)
        else:
            self._up_since = self._clock()
            self.setup_s = self._up_since - began
            self._setup_failures = 0
            self.error = None
        finally:
            self._attempt = None
        self._on_change(self)

    async def _connect_in_time(self) -> Connection:
        """A new connection after its handshake; every failure is a :class:`KafkaError`."""
        config = self._config
        self._authenticating = False
        limit_s = backoff_s(
            self._setup_failures + 1,
            config.socket_connection_setup_timeout_ms / 1000,
            config.socket_connection_setup_timeout_max_ms / 1000,
            self._rng,
        )
        try:
            async with asyncio.timeout(limit_s):
                connection = await self._dial_and_shake_hands()
                await self._authenticate(connection)
                return connection
        except KafkaError:
            raise
        except TimeoutError as error:
            if self._authenticating:
                raise BrokerConnectionError(
                    f"{self.name} and this client could not finish authentication within "
                    f"{limit_s:.3g} s (socket.connection.setup.timeout.ms)"
                ) from error
            raise BrokerConnectionError(
                f"{self.name} could not be connected within {limit_s:.3g} s "
                "(socket.connection.setup.timeout.ms); is it up, and its port open from here?"
            ) from error
        except OSError as error:
            raise BrokerConnectionError(f"{self.name} could not be connected: {error}") from error
        except Exception as error:
            _log.exception("connecting to %s failed in an unexpected way", self.name)
            raise BrokerConnectionError(
                f"{self.name} could not be connected: {type(error).__name__}: {error}"
            ) from error

    async def _dial_and_shake_hands(self) -> Connection:
        first = self._api_versions_version
        for version in (first, *(v for v in _API_VERSIONS_FALLBACKS if v < first)):
            _, connection = await self._dialer.dial(
                self.broker.host, self.broker.port, self._new_connection
            )
            try:
                await connection.handshake(version)
            except (BrokerConnectionError, ProtocolError) as error:
                connection.abort()
                await self._explain_silence()
                if version == _API_VERSIONS_FALLBACKS[-1] or isinstance(error, ProtocolError):
                    raise
            except BaseException:
                connection.abort()
                raise
            else:
                if connection.api_versions_version is not None:
                    self._api_versions_version = max(version, connection.api_versions_version)
                return connection
        raise AssertionError("the last version returns or raises")

    async def _explain_silence(self) -> None:
        if self._security is not None and not self._setup_failures:
            _, host, port, _ = self.broker
            await self._security.explain_silence(self.name, host, port, self._dialer)

    async def _authenticate(self, connection: Connection) -> None:
        if self._security is None:
            return
        self._authenticating = True
        try:
            if self._lost_early:
                self._lost_early = False
                await self._security.explain_loss(connection)
            self._session = await self._security.authenticate(connection)
        except BaseException as error:
            connection.close(error if isinstance(error, KafkaError) else None)
            connection.abort()
            raise
        self._authenticating = False

    def _new_connection(self) -> Connection:
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
        if connection is not self._connection:
            return  # lost during its handshake: the attempt tells
        self._connection = None
        if self._session is not None:
            self._session.close()
            self._session = None
        served_s = self._clock() - self._up_since
        if error is None or served_s >= self._config.reconnect_backoff_max_ms / 1000:
            self._failures_in_a_row, self._not_before = 0, 0.0
            self.error = error
        else:
            self._failed(error)
            self._lost_early = isinstance(error, BrokerConnectionError)
        if error is not None and not self._closed:
            _log.info("%s", error)
        self._on_change(self)

    def _connection_writable(self, connection: Connection) -> None:
        if connection is self._connection:
            self._on_change(self)

    def _failed(self, error: KafkaError) -> None:
        self.error = error
        self._failures_in_a_row += 1
        first_s = self._config.reconnect_backoff_ms / 1000
        longest_s = self._config.reconnect_backoff_max_ms / 1000
        if isinstance(error, AuthenticationError):
            first_s, longest_s = longest_s, longest_s * _REFUSED_PAUSES
        self._not_before = self._clock() + backoff_s(
            self._failures_in_a_row, first_s, longest_s, self._rng
        )
