"""Sends requests to a cluster, shares equal ones, and retries within an operation's time limit."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from contextlib import asynccontextmanager
from contextvars import ContextVar
from random import Random
from types import MappingProxyType
from typing import TYPE_CHECKING, Generic, TypeVar

from kafkaclient.broker_errors import ErrorCode, broker_error
from kafkaclient.cluster.backoff import poll, retry_pause_s, until_answered
from kafkaclient.cluster.coordinator import CodedAnswer, Coordinators
from kafkaclient.cluster.identity import is_final
from kafkaclient.cluster.router import Router
from kafkaclient.cluster.view import Broker, ClusterView
from kafkaclient.cluster.waits import Waits, bootstrap_error, in_another_loop
from kafkaclient.config.kinds import Limit
from kafkaclient.errors import (
    AdminStateError,
    AdminTimeoutError,
    KafkaError,
    ProducerClosedError,
    ProtocolError,
    RequestTimedOutError,
)
from kafkaclient.time_limit import time_limit
from kafkaclient.wire.metadata import MetadataCall

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Hashable, Mapping
    from typing import Any

    from kafkaclient.config.reader import AdminConfig
    from kafkaclient.net.dialer import Dialer
    from kafkaclient.wire.api import Call, MetadataResult


# --- calls that concurrent callers share ----------------------------------------------------------

T = TypeVar("T")


class Shared(Generic[T]):
    """Callers with the same key share the call that is under way. It is cancelled when its last
    caller is."""

    def __init__(self) -> None:
        self._under_way: dict[Hashable, asyncio.Task[T]] = {}
        self._callers: Counter[asyncio.Task[T]] = Counter()

    async def __call__(self, key: Hashable, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of ``call()``, or of the call under way for ``key``."""
        task = self._under_way.get(key)
        if task is None or task.done():
            task = self._under_way[key] = asyncio.create_task(call(), name="kafkaclient-shared")
        self._callers[task] += 1
        try:
            return await asyncio.shield(task)
        finally:
            self._callers[task] -= 1
            if self._under_way.get(key) is task and (task.done() or not self._callers[task]):
                del self._under_way[key]
                task.cancel()
            if not self._callers[task]:
                del self._callers[task]


# --- Sends requests to a cluster ------------------------------------------------------------------

_log = logging.getLogger(__name__)

NOT_NOW = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER})
"""The request may succeed later."""

A = TypeVar("A", bound=CodedAnswer)
K = TypeVar("K")

# Stands for the broker that metadata names as the controller. A KRaft cluster names any broker,
# which forwards requests to the controller.
CONTROLLER = -2

# Seconds to wait for metadata, which every broker can answer. Doubled with each failure, up to the
# request timeout.
_METADATA_TIMEOUT_S = 3.0

_ANSWER = "an answer of the cluster"  # what all calls wait for, so that the log has one line

_REQUEST_TIMEOUT_S = 10.0  # seconds for one of many requests; detects a broker that is down

# The errors of this operation's attempts, the last one only. Its tasks inherit the list, and other
# operations of the same client have their own.
_attempt_errors: ContextVar[list[KafkaError] | None] = ContextVar("attempt_errors", default=None)


class AdminSession:
    """The connections, metadata requests, retries and operation time limits of an admin client.

    Each operation enters :meth:`limit` once; all requests inside share this time limit.
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
        # The controller's time limit: below request.timeout.ms, so that its answer arrives in time.
        self.controller_timeout_ms = config.request_timeout_ms * 3 // 4
        self._rng = rng or Random()
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        clock = clock or self.loop.time
        self._router = Router(config, dialer, clock=clock, rng=self._rng)
        self._waits = Waits(clock, config.client_id)
        self._controller: int | None = None
        """None if unknown: then any broker answers NOT_CONTROLLER, and the caller retries."""
        self.coordinators = Coordinators(
            self._router,
            config=config,
            rng=self._rng,
            waits=self._waits,
            on_unknown=self._refresh_soon,
        )
        self._refreshing: asyncio.Task[object] | None = None
        self.shared_metadata: Shared[MetadataResult] = Shared()
        """For operations that many callers begin at the same time, by topics."""

    def check_home(self, what: str) -> None:
        """Raise in another event loop than the client's."""
        if asyncio.get_running_loop() is not self.loop:
            raise AdminStateError(f"{what}: {in_another_loop('admin client', self.loop)}")

    async def close(self) -> None:
        """Close every connection. Pending requests fail."""
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.gather(self._refreshing, return_exceptions=True)
        await self._router.close()

    @asynccontextmanager
    async def limit(self, what: str, timeout_s: float | None = None) -> AsyncIterator[None]:
        """Limit the block to ``timeout_s`` (default: ``default.api.timeout.ms``).

        Raises AdminTimeoutError, which names the last error, and AdminStateError if the client is
        closed during the block.
        """
        seconds = self.config.default_api_timeout_ms / 1000 if timeout_s is None else timeout_s
        errors: list[KafkaError] = []
        outer = _attempt_errors.get()
        _attempt_errors.set(errors)
        try:
            async with time_limit(seconds) as limit:
                yield
        except TimeoutError as error:
            if isinstance(error, KafkaError) or not limit.expired():
                raise
            cause = errors[0] if errors else None
            raise AdminTimeoutError(
                f"{what}: not done within {seconds:g} s (default.api.timeout.ms); last cause: "
                f"{cause or 'no answer from any broker yet'}. The operation may have taken effect: "
                "check that before you retry"
            ) from cause
        except ProducerClosedError as error:
            raise AdminStateError(f"{what}: the admin client was closed") from error
        finally:
            _attempt_errors.set(outer)

    async def pause(self, failures: int) -> None:
        """Wait before the next attempt: ``retry.backoff.ms`` to ``retry.backoff.max.ms``."""
        await asyncio.sleep(retry_pause_s(failures, self.config, self._rng))

    async def poll(
        self,
        read: Callable[[], Awaitable[T]],
        done: Callable[[T], bool],
        *,
        max_reads: int | None = None,
    ) -> T:
        """The first result of ``read()`` for which ``done(result)`` is true, or the result of read
        number ``max_reads``. Brokers learn of a change late, so a first answer may be too old."""
        return await poll(read, done, self.pause, max_reads)

    async def start(
        self, timeout_s: float | None, on_failure: Callable[[KafkaError], None] | None
    ) -> None:
        """Connect to the cluster. Raises BootstrapError after ``timeout_s`` (default:
        ``default.api.timeout.ms``). Errors that no retry can fix are raised at once, and so is what
        ``on_failure(error)`` raises before a retry."""
        limit = Limit(self.config.default_api_timeout_ms / 1000, "default.api.timeout.ms")
        if timeout_s is not None:
            limit = Limit(timeout_s)
        refused_limit, servers = self.config.connect_limit, self.config.bootstrap_servers

        def failed(error: KafkaError) -> None:
            if on_failure is not None:
                on_failure(error)
            if refused_limit.seconds <= self._router.refused_s():
                raise bootstrap_error(servers, refused_limit, error, None) from error

        try:
            async with self.limit("start", limit.seconds):
                await self.metadata((), failed)
        except AdminTimeoutError as error:
            cause, token = error.__cause__, self._router.missing_token()
            why = cause or self._router.pending_step()
            raise bootstrap_error(servers, limit, why, token) from cause

    async def metadata(
        self,
        topics: tuple[str, ...] | None,
        on_failure: Callable[[KafkaError], None] | None = None,
    ) -> MetadataResult:
        """Metadata of the brokers and of ``topics`` (None: all topics). Creates no topic."""
        call = MetadataCall(topics, allow_auto_topic_creation=False)
        timeout_s, failed = _METADATA_TIMEOUT_S, 0

        async def attempt() -> MetadataResult:
            limit = min(self.config.request_timeout_ms / 1000, timeout_s)
            return await self._router.metadata(call, timeout_s=limit, failures=failed)

        async def before_retry(error: KafkaError, failures: int) -> None:
            nonlocal timeout_s, failed
            failed = failures
            if is_final(error, failures, len(self.config.bootstrap_servers)):
                raise error
            self.note_error(error)
            if on_failure is not None:
                on_failure(error)
            timeout_s *= 2
            await self.pause(failures)

        result = await until_answered(attempt, before_retry, self._waits, _ANSWER)
        brokers = {broker.node_id: Broker(*broker) for broker in result.brokers}
        self._controller = result.controller_id if result.controller_id in brokers else None
        view = ClusterView(brokers=MappingProxyType(brokers), cluster_id=result.cluster_id)
        self._router.update_brokers(view)
        return result

    async def call(self, call: Call[T], node: int | None = None) -> T:
        """The answer of broker ``node``, of :data:`CONTROLLER`, or of any broker (None).

        Retries a request that was not sent or not answered, so the request must be idempotent. The
        caller handles error codes in the answer.
        """
        return await self.until_answered(lambda: self.once(call, node))

    async def until_answered(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """The result of the first attempt that does not fail with a retriable error."""

        async def before_retry(error: KafkaError, failures: int) -> None:
            self._note_retriable(error)
            await self.pause(failures)
            await self.metadata(())

        return await until_answered(attempt, before_retry, self._waits, _ANSWER, silence=None)

    async def from_each_broker(self, call: Call[A], what: str) -> list[A]:
        """The answers of all brokers that are up. Raises the error of one; ``what`` describes the
        call, as in "listing the groups"."""

        async def answer_of(node: int) -> A:
            answer = await self.once(call, node)
            if answer.error_code:
                raise broker_error(answer.error_code, f"{what} of broker {node}")
            return answer

        async def attempt() -> list[A]:
            brokers = (await self.metadata(())).brokers
            return await asyncio.gather(*(answer_of(broker.node_id) for broker in brokers))

        return await self.until_answered(attempt)

    def _refresh_soon(self, _reason: str) -> None:
        """Refresh metadata in the background, unless a refresh is already running."""

        async def refresh() -> None:
            try:
                await self.metadata(())
            except KafkaError as error:
                self.note_error(error)

        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(refresh(), name="kafkaclient-refresh")

    async def once(self, call: Call[T], node: int | None = None) -> T:
        """The answer to one attempt. Raises as :meth:`.Router.call`."""
        if node == CONTROLLER:
            node = self._controller
        return await self._router.call(call, node)

    def note_error(self, error: KafkaError) -> None:
        """Remember the last error for the message of the operation's AdminTimeoutError."""
        if (errors := _attempt_errors.get()) is not None:
            errors[:] = [error]
        _log.debug("retrying after: %s", error)

    def _note_retriable(self, error: KafkaError) -> None:
        """Raise an error that no retry can fix, note a retriable one."""
        if not (error.retriable or isinstance(error, ProtocolError)):
            raise error
        self.note_error(error)


async def gather_outcomes(
    jobs: Mapping[K, Coroutine[None, None, T]], *, timeout_s: float | None = _REQUEST_TIMEOUT_S
) -> tuple[dict[K, T], dict[K, KafkaError]]:
    """Run the jobs concurrently, each with a time limit. Returns the results of the jobs that
    succeeded, and the errors of the jobs that failed."""

    async def timed(job: Coroutine[None, None, T]) -> T:
        try:
            async with time_limit(timeout_s):
                return await job
        except TimeoutError as error:
            if isinstance(error, KafkaError):
                raise
            raise RequestTimedOutError(f"no answer within {timeout_s:g} s") from error

    try:
        outcomes = await asyncio.gather(*map(timed, jobs.values()), return_exceptions=True)
    finally:
        for job in jobs.values():
            job.close()  # one that was cancelled before it began
    done: dict[K, T] = {}
    failed: dict[K, KafkaError] = {}
    for key, outcome in zip(jobs, outcomes, strict=True):
        if isinstance(outcome, KafkaError):
            failed[key] = outcome
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            done[key] = outcome
    return done, failed
