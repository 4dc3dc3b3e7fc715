"""Asks a broker which metrics it wants of this client, and pushes them (KIP-714).

Java: ``ClientTelemetryReporter``. With brokers that have no receiver for metrics nothing is sent:
their ApiVersions response says so.
"""

from __future__ import annotations

import asyncio
import logging
import math
from typing import TYPE_CHECKING, TypeVar

from kafkaclient.broker_errors import ErrorCode, broker_error
from kafkaclient.errors import KafkaError
from kafkaclient.metrics_push.otlp import Counters, metrics_data
from kafkaclient.time_limit import DaemonThreads, cancel_and_wait, time_limit
from kafkaclient.wire.api import ApiKey
from kafkaclient.wire.compression import CompressionType, compress
from kafkaclient.wire.telemetry import (
    NO_INSTANCE_ID,
    GetTelemetrySubscriptionsCall,
    PushTelemetryCall,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from random import Random
    from uuid import UUID

    from kafkaclient.cluster.router import Router
    from kafkaclient.metrics_push.points import ApplicationMetrics, Point
    from kafkaclient.wire.api import Call
    from kafkaclient.wire.telemetry import TelemetrySubscription

T = TypeVar("T")

_log = logging.getLogger(__name__)

_DEFAULT_INTERVAL_S = 300.0
_JITTER = (0.5, 1.5)
"""The first push comes after this part of the interval, so that clients that were started together
do not push together."""
_ASK_AGAIN = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
_WAIT = (ErrorCode.TELEMETRY_TOO_LARGE, ErrorCode.THROTTLING_QUOTA_EXCEEDED)
_MOST_AT_ONCE = 500  # points that are encoded on the event loop; more are in a thread
_CODECS = frozenset(CompressionType)
_NS_PER_S = 1_000_000_000


class MetricsPush:
    """Pushes the metrics of one client, in a task of its own, while a broker subscribes to some.

    ``collect()`` gives the client's own points, ``labels()`` the attributes of the client.
    ``enabled`` is ``enable.metrics.push``; ``wall_clock`` gives seconds since the epoch. Nothing
    here fails the client: what goes wrong is logged. What was pushed and not answered is pushed
    again, so a delta may count twice.
    """

    def __init__(
        self,
        router: Router,
        collect: Callable[[], Iterable[Point]],
        labels: Callable[[], Mapping[str, str]],
        application: ApplicationMetrics,
        *,
        enabled: bool,
        wall_clock: Callable[[], float],
        rng: Random,
    ) -> None:
        self._enabled = enabled
        self._router = router
        self._collect = collect
        self._labels = labels
        self._application = application
        self._wall_clock = wall_clock
        self._rng = rng
        self._counters = Counters(self._now_ns())
        self._subscription: TelemetrySubscription | None = None
        """The subscription to push for; None: a broker is asked for one next."""
        self._instance_id = NO_INSTANCE_ID
        self._interval_s = _DEFAULT_INTERVAL_S
        self._node_id: int | None = None
        """The broker that has answered last, which is asked again while it does."""
        self._asked = asyncio.Event()
        """Set when the first question is answered, or no broker answers it."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin; brokers are known. Does nothing with ``enable.metrics.push=false``."""
        if self._enabled:
            self._task = asyncio.create_task(self._run(), name="kafkaclient-metrics-push")

    async def close(self, last_push_s: float = 0.0) -> None:
        """End the task. With a subscription, push a last time, which may take ``last_push_s``
        seconds."""
        task, self._task = self._task, None
        if task is None:
            return
        is_over = task.done()
        await cancel_and_wait(task)
        if is_over or self._subscription is None or last_push_s <= 0:
            return
        try:
            async with time_limit(last_push_s):
                await self._push(self._subscription, terminating=True)
        except TimeoutError:
            _log.debug("the last push of metrics was not answered within %.3g s", last_push_s)
        except Exception:  # noqa: BLE001 - no metric is worth a client
            _log.exception("the last push of metrics failed")

    async def client_instance_id(self, timeout: float) -> UUID | None:
        """The id that the cluster has given this client; None if no broker gives one within
        ``timeout`` seconds."""
        if self._task is not None:
            try:
                async with time_limit(timeout):
                    await self._asked.wait()
            except TimeoutError:
                return None
        return None if self._instance_id == NO_INSTANCE_ID else self._instance_id

    async def _run(self) -> None:
        pause_s: float | None = 0.0
        try:
            while pause_s is not None:
                await asyncio.sleep(pause_s)
                if self._subscription is None:
                    pause_s = await self._subscribe()
                    self._asked.set()
                else:
                    pause_s = await self._push(self._subscription)
        except Exception:  # noqa: BLE001 - no metric is worth a client
            _log.exception("pushing metrics failed, and ends; the client goes on")
        finally:
            self._asked.set()

    async def _subscribe(self) -> float | None:
        """Ask for a subscription. Returns the seconds until the next request; None: there is to be
        none."""
        if not self._router.may_offer(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS):
            return _DEFAULT_INTERVAL_S
        found = await self._ask(GetTelemetrySubscriptionsCall(self._instance_id))
        if found is None:
            return self._interval_s
        if found.error_code:
            return None if self._pause_after(found.error_code) is None else self._interval_s
        if found.client_instance_id != NO_INSTANCE_ID:
            self._instance_id = found.client_instance_id
        valid = found.push_interval_ms > 0
        self._interval_s = found.push_interval_ms / 1000 if valid else _DEFAULT_INTERVAL_S
        if not found.requested_metrics:
            return self._interval_s
        self._subscription = found
        _log.debug("the cluster subscribes to metrics of client instance %s", self._instance_id)
        return self._interval_s * self._rng.uniform(*_JITTER)

    async def _push(
        self, wanted: TelemetrySubscription, *, terminating: bool = False
    ) -> float | None:
        """Push the metrics that are wanted. Returns as :meth:`_subscribe`."""
        at_ns, codec = self._now_ns(), _preferred(wanted.compression_types)
        known = self._application.beside(self._collect())
        points, metrics = await self._payload(wanted, known, codec, at_ns)
        if metrics is None:
            self._subscription = None  # another one may ask for less
            return self._interval_s
        answer = await self._ask(
            PushTelemetryCall(
                self._instance_id, wanted.subscription_id, terminating, codec, metrics
            )
        )
        if answer is None or answer.error_code:
            self._subscription = None
            return self._interval_s if answer is None else self._pause_after(answer.error_code)
        if wanted.delta_temporality:
            self._counters.pushed(points, at_ns, known)
        return self._interval_s

    async def _payload(
        self, wanted: TelemetrySubscription, known: Iterable[Point], codec: int, at_ns: int
    ) -> tuple[list[Point], bytes | None]:
        """The wanted points, and their bytes: without attributes, if all of them are too many for
        the broker; None, if these are too many as well."""
        requested = wanted.requested_metrics
        prefixes = ("",) if requested == ("*",) else requested
        points = [
            point
            for point in known
            if point.name.startswith(prefixes) and not math.isnan(point.value)
        ]
        labels = self._labels()

        def encode(chosen: list[Point]) -> bytes:
            data = metrics_data(
                chosen, labels, self._counters, at_ns, delta=wanted.delta_temporality
            )
            return compress(codec, data)

        for chosen in (points, [point for point in points if not point.attributes]):
            if len(chosen) <= _MOST_AT_ONCE:
                metrics = encode(chosen)
            else:
                loop = asyncio.get_running_loop()
                metrics = await loop.run_in_executor(DaemonThreads(), encode, chosen)
            if len(metrics) <= wanted.max_bytes:
                return chosen, metrics
            text = "%d metrics have %d bytes, and a broker takes %d (telemetry.max.bytes)"
            _log.info(text, len(chosen), len(metrics), wanted.max_bytes)
        return [], None

    async def _ask(self, call: Call[T]) -> T | None:
        """A broker's answer; None: there is none."""
        try:
            self._node_id, answer = await self._router.call_any(call, self._node_id)
        except KafkaError as error:
            _log.debug("%s was not answered: %s", call.api_key.name, error)
            self._node_id = None
            return None
        return answer

    def _pause_after(self, code: int) -> float | None:
        """The seconds until a broker is asked for a subscription after this error; None: never."""
        error = broker_error(code, "pushing metrics")
        if code in _ASK_AGAIN or code in _WAIT:
            _log.debug("%s", error)
            return 0.0 if code in _ASK_AGAIN else self._interval_s
        _log.warning("%s; this client pushes no metrics any more", error)
        return None

    def _now_ns(self) -> int:
        return int(self._wall_clock() * _NS_PER_S)


def _preferred(codecs: Iterable[int]) -> int:
    """The first of the broker's codecs that this client has."""
    return next((codec for codec in codecs if codec in _CODECS), CompressionType.NONE)
