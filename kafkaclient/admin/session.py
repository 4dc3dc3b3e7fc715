"""Calls to a cluster, made until they are answered or the time for them is over."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from random import Random
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from kafkaclient.broker_errors import broker_error
from kafkaclient.cluster.backoff import retry_pause_s
from kafkaclient.cluster.coordinator import Coordinators
from kafkaclient.cluster.retry import until_answered
from kafkaclient.cluster.router import Router
from kafkaclient.cluster.view import Broker, ClusterView
from kafkaclient.errors import (
    AdminStateError,
    AdminTimeoutError,
    BootstrapError,
    BrokerConnectionError,
    KafkaError,
    ProducerClosedError,
    ProtocolError,
)
from kafkaclient.wire.metadata import MetadataCall

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from kafkaclient.config.admin import AdminConfig
    from kafkaclient.net.dialer import Dialer
    from kafkaclient.wire.api import Call
    from kafkaclient.wire.results import MetadataResult

__all__ = ["CONTROLLER", "NOT_NOW", "Session"]

_log = logging.getLogger(__name__)

T = TypeVar("T")

CONTROLLER = -2
"""Stands for whichever broker metadata names as the controller. In a KRaft cluster that is any
broker, which passes on what only the controller can do."""

NOT_NOW = frozenset({7, 41})  # REQUEST_TIMED_OUT, NOT_CONTROLLER
"""The answer of a controller that cannot do it now."""

_PATIENCE_S = 3.0
"""How long a broker has for an answer that any other can give as well; doubled with each failure,
up to the request timeout."""


class Session:
    """Connections, metadata on demand, retries, and the time limit of each operation.

    Not reentrant in its limits: every operation opens :meth:`limit` once, and all calls within it
    share its time.
    """

    def __init__(
        self,
        config: AdminConfig,
        *,
        dialer: Dialer | None,
        clock: Callable[[], float] | None,
        rng: Random | None,
    ) -> None:
        self.config = config
        loop = asyncio.get_running_loop()
        self._clock = clock or loop.time
        self._rng = rng or Random()
        self._router = Router.secured(config, dialer, clock=clock or loop.time, rng=self._rng)
        self._controller = -1
        self._known: frozenset[int] = frozenset()
        self._last_error: KafkaError | None = None
        self._refreshing: asyncio.Task[object] | None = None

    async def close(self) -> None:
        """End every connection; calls under way fail."""
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.gather(self._refreshing, return_exceptions=True)
        await self._router.close()

    # --- time ---------------------------------------------------------------------------------

    @asynccontextmanager
    async def limit(self, what: str, timeout_s: float | None = None) -> AsyncIterator[None]:
        """Everything inside ends within ``timeout_s`` (default: ``default.api.timeout.ms``).

        Raises AdminTimeoutError, which names what was met last; AdminStateError when the client
        was closed meanwhile.
        """
        seconds = self.config.default_api_timeout_ms / 1000 if timeout_s is None else timeout_s
        self._last_error = None
        try:
            async with asyncio.timeout(seconds) as limit:
                yield
        except TimeoutError as error:
            if isinstance(error, KafkaError) or not limit.expired():
                raise
            cause = self._last_error
            raise AdminTimeoutError(
                f"{what}: not done within {seconds:g} s (default.api.timeout.ms); last cause: "
                f"{cause or 'no answer from any broker yet'}. Look first whether it has been done "
                "before trying it again"
            ) from cause
        except ProducerClosedError as error:
            raise AdminStateError(f"{what}: the admin client was closed meanwhile") from error

    async def pause(self, failures: int) -> None:
        """The pause before the next attempt (``retry.backoff.ms`` to ``.max.ms``)."""
        await asyncio.sleep(retry_pause_s(failures, self.config, self._rng))

    # --- calls --------------------------------------------------------------------------------

    async def start(self) -> None:
        """Reach the cluster. Raises BootstrapError after ``default.api.timeout.ms``, and at once
        what no retry can mend."""
        servers = ", ".join(f"{host}:{port}" for host, port in self.config.bootstrap_servers)
        try:
            async with self.limit("start"):
                await self.metadata(())
        except AdminTimeoutError as error:
            raise BootstrapError(
                f"no bootstrap server ({servers}) answered within "
                f"{self.config.default_api_timeout_ms / 1000:g} s (default.api.timeout.ms): "
                f"{error.__cause__ or 'no connection yet'}. Check the addresses, that brokers run "
                "there, and that the network lets you through"
            ) from error.__cause__

    async def metadata(self, topics: tuple[str, ...] | None) -> MetadataResult:
        """Brokers and topics (None: all of them); no topic is ever created by asking."""
        call = MetadataCall(topics, allow_auto_topic_creation=False)
        patience = _PATIENCE_S

        async def attempt() -> MetadataResult:
            limit = min(self.config.request_timeout_ms / 1000, patience)
            result = await self._router.call(call, timeout_s=limit)
            if result.error_code:
                raise broker_error(result.error_code, "metadata request")
            if not result.brokers:
                raise BrokerConnectionError("a broker answered that it knows of no brokers")
            return result

        async def before_retry(error: KafkaError, failures: int) -> None:
            nonlocal patience
            # One server that is no broker says nothing of the others.
            if isinstance(error, ProtocolError) and failures >= len(self.config.bootstrap_servers):
                raise error
            self._note(error)
            patience *= 2
            await self.pause(failures)

        result = await until_answered(attempt, before_retry)
        self._learn(result)
        return result

    def _learn(self, result: MetadataResult) -> None:
        brokers = {broker.node_id: Broker(*broker) for broker in result.brokers}
        self._controller = result.controller_id
        self._known = frozenset(brokers)
        self._router.update_brokers(ClusterView(brokers=MappingProxyType(brokers)))

    async def call(self, call: Call[T], node: int | None = None) -> T:
        """One answer, by a broker, by :data:`CONTROLLER`, or by any broker (None).

        A call that could not be made, or was not answered, is made again: only for calls that may
        be repeated. Error codes in the answer are the caller's affair.
        """
        return await self.until_answered(lambda: self.once(call, node))

    async def until_answered(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """The result of the first attempt that does not fail in a way that may pass."""

        async def before_retry(error: KafkaError, failures: int) -> None:
            self._note(error)
            await self.pause(failures)
            await self.metadata(())

        return await until_answered(attempt, before_retry)

    def coordinators(self) -> Coordinators:
        """Who makes calls to the brokers that coordinate."""
        return Coordinators(
            self._router,
            retry_backoff=self.config.retry_backoff_ms / 1000,
            retry_backoff_max=self.config.retry_backoff_max_ms / 1000,
            request_timeout=self.config.request_timeout_ms / 1000,
            rng=self._rng,
            on_unknown=self._refresh_soon,
        )

    def _refresh_soon(self, _reason: str) -> None:
        """Metadata in the background, unless it is being asked for."""
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._refresh(), name="kafkaclient-refresh")

    async def _refresh(self) -> None:
        try:
            await self.metadata(())
        except KafkaError as error:
            self.answered(error)

    async def once(self, call: Call[T], node: int | None = None) -> T:
        """One attempt of a call; raises what the router raises."""
        if node == CONTROLLER:
            # With no controller elected any broker will do: it says so, and is asked again.
            node = self._controller if self._controller in self._known else None
        return await self._router.call(call, node)

    def answered(self, error: KafkaError) -> None:
        """Note what an answer said, for the message when time runs out."""
        self._last_error = error
        _log.debug("trying again: %s", error)

    def _note(self, error: KafkaError) -> None:
        """Raise an error that will not pass by itself."""
        if not (error.retriable or isinstance(error, ProtocolError)):
            raise error
        self.answered(error)
