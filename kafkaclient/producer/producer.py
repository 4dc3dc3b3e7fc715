"""``Producer``, the public class: its life cycle, and sending one record."""

from __future__ import annotations

import asyncio
import time
import weakref
from functools import partial
from importlib import import_module
from random import Random
from typing import TYPE_CHECKING, Never, Self, overload

from kafkaclient.cluster.waits import close_dropped
from kafkaclient.config import ProducerConfig
from kafkaclient.errors import FlushTimeoutError, ProducerClosedError, ProducerStateError, counted
from kafkaclient.net.off_loop import guard
from kafkaclient.producer.batches.delivery import Delivery
from kafkaclient.producer.batches.direct_append import DirectAppend
from kafkaclient.producer.batches.record import RawRecord, serialized_record
from kafkaclient.producer.bulk_api import BulkApi
from kafkaclient.producer.observability.reports import report_start
from kafkaclient.producer.observation_api import ObservationApi
from kafkaclient.producer.runtime import ProducerRuntime
from kafkaclient.producer.settings import ProducerState
from kafkaclient.producer.transaction_api import TransactionApi
from kafkaclient.time_limit import time_limit
from kafkaclient.types import Key_contra, Value_contra

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Unpack

    from kafkaclient.config.keywords import ProducerKeywords, SerializingKeywords
    from kafkaclient.net.dialer import Dialer
    from kafkaclient.types import Buffer, HeadersLike, RecordMetadata

_OVERHEAD = 128  # bytes: a batch with one record takes less besides key, value and headers


class Producer(DirectAppend, BulkApi[Key_contra, Value_contra], TransactionApi, ObservationApi):
    """Publishes records to Kafka from one asyncio event loop.

    ::

        async with Producer("localhost:9092", linger_ms=5) as producer:
            metadata = await producer.send_and_wait("flights", b"value", key=b"UA")

    Parameters: bootstrap servers (``"host:port,host:port"`` or a list of strings ``"host:port"``),
    or a mapping of options under Kafka's dotted names (``{"bootstrap.servers": ...,
    "linger.ms": 5}``); further options by keyword (``linger_ms=5``). The ``config`` of another
    producer can be given instead, without options. Names, defaults and meaning of the options are
    the same as in Java's ``ProducerConfig``; the reference lists them ("Producer options").
    ``dialer``, ``clock`` (monotonic seconds), ``wall_clock`` (seconds
    since the epoch, stamps records) and ``rng`` are for tests.

    Type checkers know the types of keys and values from the serializers. Without serializers they
    are bytes. ``Producer`` alone, as in an annotation, takes any.

    Creating a producer does no I/O; :meth:`start` or ``async with`` connects. A producer belongs to
    the event loop it was started in. Its only threads compress large batches and write
    ``telemetry``. A forked child cannot use the producer, and does not disturb it. A producer
    cannot be copied or pickled. A producer that is dropped without :meth:`stop` warns
    (ResourceWarning), and is stopped in the background while its event loop runs.

    Raises:
        ConfigError: an option is unknown, not usable or in conflict with another, or ``telemetry``
            is set and pyarrow is not installed.
    """

    @overload
    def __init__(
        self: Producer[Buffer, Buffer],
        bootstrap: str | list[str] | tuple[str, ...] | None = None,
        /,
        *,
        dialer: Dialer | None = None,
        clock: Callable[[], float] | None = None,
        wall_clock: Callable[[], float] = time.time,
        rng: Random | None = None,
        **options: Unpack[ProducerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self,
        bootstrap_or_mapping: (
            str | Iterable[str] | Mapping[str, object] | ProducerConfig | None
        ) = None,
        /,
        *,
        dialer: Dialer | None = None,
        clock: Callable[[], float] | None = None,
        wall_clock: Callable[[], float] = time.time,
        rng: Random | None = None,
        **options: Unpack[SerializingKeywords[Key_contra, Value_contra]],
    ) -> None: ...

    def __init__(
        self,
        bootstrap_or_mapping: (
            str | Iterable[str] | Mapping[str, object] | ProducerConfig | None
        ) = None,
        /,
        *,
        dialer: Dialer | None = None,
        clock: Callable[[], float] | None = None,
        wall_clock: Callable[[], float] = time.time,
        rng: Random | None = None,
        **options: Unpack[SerializingKeywords[Key_contra, Value_contra]],
    ) -> None:
        super().__init__(ProducerConfig.build(bootstrap_or_mapping, options), wall_clock)
        if self.config.telemetry is not None:
            # Raises ConfigError now if pyarrow or a file system cannot be imported.
            import_module("kafkaclient.telemetry.reading").check_scheme(self.config.telemetry)
        if self.config.transactional_id is not None:
            # It takes a tenth of a second: not in the event loop of a later start().
            import_module("kafkaclient.producer.transactions.manager")
        self._dialer = dialer
        self._clock = clock
        self._rng = rng or Random()
        self._stopping: asyncio.Task[int] | None = None

    def __repr__(self) -> str:
        core = self._core
        if core is None or self.is_stopped:
            return f"<Producer {self.config.client_id!r} {self._state.value}>"
        lanes = ", ".join(map(repr, core.sender.lanes))
        waits = "".join(f" {text};" for text, _ in core.metadata.waits.lasting())
        return f"<Producer {self.config.client_id!r} {core.accumulator!r} [{lanes}]{waits}>"

    def __reduce_ex__(self, protocol: object) -> Never:
        raise TypeError(
            "a Producer cannot be copied or pickled: it owns its connections and records; create "
            "another one from the same options"
        )

    @property
    def is_stopped(self) -> bool:
        """Whether the producer has ended: :meth:`stop` has returned or :meth:`start` has failed, or
        this is a forked child and the producer belongs to its parent. Can be read in any thread."""
        return self._state in (ProducerState.STOPPED, ProducerState.FORKED)

    def __del__(self) -> None:
        core = self._core
        if core is not None and not self.is_stopped:
            what = f"producer {self.config.client_id!r}"
            close_dropped(self, what, core.loop, partial(core.stop, None))

    def forked(self) -> None:
        """See :class:`~kafkaclient.net.off_loop.Forkable`; not for applications."""
        self._close_direct_append()
        self._state = ProducerState.FORKED

    # --- life cycle ---------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect to the cluster. With a ``transactional.id``, fence any older producer with the
        same id, and abort the transaction that it left open.

        Raises:
            BootstrapError: no bootstrap server answered within ``max.block.ms`` (if that is 0,
                within ``request.timeout.ms``) or ``bootstrap.connect.timeout.ms`` (10 s), if that
                is longer; or all of them refused connections, or had unknown names, for the latter.
            TransactionTimeoutError: the transaction coordinator did not give a producer id within
                the same time.
            BrokerError: the coordinator refused to give a producer id.
            AuthenticationError: a bootstrap server refused this client, or this client the server
                (also SslAuthenticationError, SaslAuthenticationError); at once, or when a broker
                has refused the login three times.
            ConfigError: a certificate or key cannot be read.
            ProducerClosedError: :meth:`stop` was called meanwhile.
            ProducerStateError: the producer has been started before.
        """
        if self._state is not ProducerState.NEW:
            raise ProducerStateError(f"the producer cannot be started: it {self._state.value}")
        core = self._core = ProducerRuntime(
            self.config,
            dialer=self._dialer,
            clock=self._clock,
            wall_clock=self._wall_clock,
            rng=self._rng,
            check_open=_weakly(self._open, _dropped),
            on_open=_weakly(self._set_direct_append, _ignored),
            application_metrics=self._application_metrics,
            new_producer=partial(
                Producer, dialer=self._dialer, clock=self._clock, wall_clock=self._wall_clock
            ),
        )
        self._state = ProducerState.STARTING
        guard(self)
        began = core.now()
        try:
            await core.metadata.start()
            await core.initialize_transactions(began)
        except BaseException:
            if self._stopping is None:
                self._state = ProducerState.STOPPED
                await core.disconnect()
            raise
        if self._stopping is not None:
            raise ProducerClosedError("the producer was stopped while it was being started")
        self._state = ProducerState.RUNNING
        core.start_sender()
        if core.transactions is None:
            self._set_direct_append(True)
        report_start(self.config.hooks, self)

    def _set_direct_append(self, is_open: bool) -> None:
        """Open direct append, or close it."""
        core, config = self._core, self.config
        if core is None or not is_open:
            self._close_direct_append()
        else:
            self._open_direct_append(
                core.accumulator.append_slots,
                core.loop,
                min(config.max_request_size, config.buffer_memory) - _OVERHEAD,
                self._wall_clock,
                None if self._serializers is None else self._serializers.apply,
            )

    async def stop(self, timeout: float | None = None) -> int:
        """Send all records, wait for their outcome, and disconnect. An open transaction is aborted
        instead, unless it is prepared.

        Records without an outcome after ``timeout`` seconds (None: no limit but
        ``delivery.timeout.ms``) fail with :class:`ProducerClosedError`. Returns the number of these
        records; 0 means that every record had its outcome. A second call waits for the first. When
        the call is cancelled, the stop goes on in the background. A :meth:`start` under way ends
        with an error. In a forked child, ``stop`` does nothing: the records belong to the parent.

        Raises:
            ProducerStateError: the call was made in another event loop than :meth:`start`.
        """
        core = self._core
        if core is None:
            self._state = ProducerState.STOPPED
        never_ran = self._state is ProducerState.STOPPED and self._stopping is None
        if core is None or never_ran or self._state is ProducerState.FORKED:
            return 0
        self._check_loop(core, "stop")
        if self._stopping is None:
            started, self._state = self._state is ProducerState.RUNNING, ProducerState.STOPPING
            self._close_direct_append()
            end = self._stop(core, timeout, started=started)
            self._stopping = asyncio.create_task(end, name="kafkaclient-stop")
        return await asyncio.shield(self._stopping)

    async def _stop(self, core: ProducerRuntime, timeout: float | None, *, started: bool) -> int:
        try:
            if started:
                return await core.stop(timeout)
            await core.disconnect()
            return 0
        finally:
            self._state = ProducerState.STOPPED

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # --- sending ------------------------------------------------------------------------------

    if TYPE_CHECKING:  # DirectAppend is compiled, and cannot be generic

        async def send(
            self,
            topic: str,
            value: Value_contra | None = None,
            key: Key_contra | None = None,
            *,
            partition: int | None = None,
            timestamp_ms: int | None = None,
            headers: HeadersLike = (),
        ) -> Delivery: ...

        def send_nowait(
            self,
            topic: str,
            value: Value_contra | None = None,
            key: Key_contra | None = None,
            *,
            partition: int | None = None,
            timestamp_ms: int | None = None,
            headers: HeadersLike = (),
        ) -> Delivery: ...

    async def send_and_wait(
        self,
        topic: str,
        value: Value_contra | None = None,
        key: Key_contra | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersLike = (),
    ) -> RecordMetadata:
        """:meth:`send`, then wait for the acknowledgement.

        Raises what :meth:`send` raises, and the error of a failed delivery
        (:class:`DeliveryTimeoutError`, :class:`BrokerError`, ...).
        """
        done = self._put(topic, value, key, partition, timestamp_ms, headers)
        return await (done if isinstance(done, Delivery) else await self._append(done))

    async def _append(self, raw: RawRecord) -> Delivery:
        """:meth:`send` where direct append is not possible (see DirectAppend)."""
        admission = self._open().admission
        record = serialized_record(self.config, self._wall_clock, raw, self._serializers)
        delivery = admission.try_append(raw.topic, record)
        return delivery or await admission.wait_and_append(raw.topic, record)

    def _send_slowly(self, raw: RawRecord) -> Delivery:
        """:meth:`send_nowait` where direct append is not possible (see DirectAppend)."""
        admission = self._open().admission
        record = serialized_record(self.config, self._wall_clock, raw, self._serializers)
        return admission.append_or_hold(raw.topic, record)

    async def flush(self, timeout: float | None = None) -> None:
        """Send all records without lingering, and wait until each has an outcome.

        Failures are reported by the deliveries, not by this call.

        Raises:
            FlushTimeoutError: ``timeout`` seconds (None: no limit) have passed; ``undelivered`` is
                the number of records without an outcome, which the producer still sends.
        """
        core = self._started("flush")
        self._check_loop(core, "flush")
        asked_at = core.now()
        try:
            async with time_limit(timeout):
                await core.drain()
        except TimeoutError:
            undelivered = core.pending_records()
            error = FlushTimeoutError(
                f"flush ended after {timeout} s with {counted(undelivered, 'record')} undelivered, "
                "which the producer still sends"
            )
            error.undelivered = undelivered
            raise error from None
        finally:
            core.metrics.flushed(core.now() - asked_at)


Producer.send.__qualname__ = "Producer.send"  # for the warning about a call without await


def _weakly(
    method: Callable[..., object], when_dropped: Callable[..., object]
) -> Callable[..., None]:
    """Calls ``method`` of a producer without keeping the producer alive: the warning about a
    dropped producer depends on its deletion. Calls ``when_dropped`` once the producer is gone."""
    known = weakref.WeakMethod(method)

    def call(*args: object) -> None:
        (known() or when_dropped)(*args)

    return call


def _dropped() -> Never:
    raise ProducerClosedError("the producer was dropped without a stop")


def _ignored(_is_open: bool) -> None:
    """There is no producer left to open or close."""
