"""What drains the accumulator into the brokers' lanes.

Java: ``Sender``. All decisions of a pass are made in :meth:`Sender.run_once`, which neither waits
nor reads a clock, so that tests can drive it by hand.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from kafkaclient.errors import (
    BrokerConnectionError,
    KafkaError,
    ProtocolError,
    UnsupportedVersionError,
    defect,
)
from kafkaclient.producer.sender.broker_lane import Request
from kafkaclient.producer.sender.broker_lanes import ALL, BrokerLanes
from kafkaclient.producer.sender.late_binder import LateBinder
from kafkaclient.producer.sender.loop_lag import LoopLagWarning
from kafkaclient.producer.sender.responses import ResponseHandler, delivery_timeout
from kafkaclient.producer.settings import GROWTH
from kafkaclient.producer.timing import NEVER
from kafkaclient.wire.api import ApiKey
from kafkaclient.wire.produce import (
    FIRST_WITH_TOPIC_IDS,
    MAX_VERSION,
    MIN_VERSION,
    decode_response,
    encode_request,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from kafkaclient.metrics import ProducerMetrics
    from kafkaclient.net.connection import Connection
    from kafkaclient.producer.accumulator.accumulator import RecordAccumulator
    from kafkaclient.producer.batches.batch import ProducerBatch
    from kafkaclient.producer.sender.broker_lane import BrokerLane
    from kafkaclient.producer.sender.ports import Connections, Leaders
    from kafkaclient.producer.sender.wakeup import Wakeup
    from kafkaclient.producer.settings import SenderSettings
    from kafkaclient.types import Buffer

__all__ = ["Sender"]

_log = logging.getLogger(__name__)

# A deadline that passed while the event loop was blocked is judged again this much later: the
# answer may lie in the socket (seconds).
_SECOND_LOOK = 0.01
# Batches that have taken records for long enough are looked for no more often than this (seconds).
_SHORTEST_LOOK = 0.05
# A connection that was silent for so long may have been closed by the broker (seconds).
_IDLE = 1.0


class Sender:
    """Sends what is ready, has answers judged, and sleeps until one of the two happens.

    ``alarm`` is what the accumulator rings when there is something to do.
    ``on_identity_wanted()`` is called when a producer id must be asked for, ``on_fatal(error)``
    when the producer may not go on.
    """

    def __init__(
        self,
        accumulator: RecordAccumulator,
        leaders: Leaders,
        connections: Connections,
        settings: SenderSettings,
        metrics: ProducerMetrics,
        wakeup: Wakeup,
        *,
        clock: Callable[[], float],
        rng: Random,
        on_identity_wanted: Callable[[], None],
        on_fatal: Callable[[KafkaError], None],
    ) -> None:
        self._accumulator = accumulator
        self._leaders = leaders
        self._connections = connections
        self._settings = settings
        self._metrics = metrics
        self._clock = clock
        self._on_identity_wanted = on_identity_wanted
        self._responses = ResponseHandler(
            accumulator.incomplete,
            accumulator.identity,
            leaders,
            settings.retrying,
            metrics,
            rng=rng,
            on_fatal=on_fatal,
        )
        self.produce_versions = (MIN_VERSION, MAX_VERSION)
        """The oldest and the newest that may be spoken."""
        self._closing = False
        self._expiry_seen: float | None = None
        self._growth = GROWTH * settings.delivery_timeout
        self._next_look = 0.0
        self._unavailable: set[int] = set()
        self._late_binder = LateBinder(
            accumulator.ready_queues,
            accumulator.binding,
            accumulator.compressor,
            accumulator.incomplete,
            accumulator.identity,
        )
        self._wakeup = wakeup
        self.wake = wakeup.wake_at
        """``wake(when)`` sees to it that a pass begins at the time ``when`` at the latest (by
        default: now)."""
        self.lanes = BrokerLanes(
            connections,
            leaders,
            settings,
            clock=clock,
            busy=lambda: bool(accumulator.incomplete),
            wake=self.wake,
            on_return=accumulator.reset_share_to_average,
            on_health=self._dead_brokers_changed,
            on_lag=LoopLagWarning(clock, metrics.event_loop_lagged).lagged,
        )
        accumulator.conditions.brokers = self.lanes

    # --- the loop -----------------------------------------------------------------------------

    async def run(self) -> None:
        """Run until :meth:`close`; the caller keeps the task and minds its exception."""
        if not self._closing:
            await self._wakeup.run(self.run_once)

    def close(self) -> None:
        """End :meth:`run` after the pass under way."""
        self._closing = True
        self.lanes.close()
        self._wakeup.stop()

    def _dead_brokers_changed(self) -> None:
        """Other brokers are dead than before, as far as is known."""
        if self._settings.acks == ALL:  # else no answer waits for a replica
            self._accumulator.detours.set_dead_brokers(self.lanes.liveness.dead, self._clock())
        self.wake()

    def run_once(self, now: float) -> float:
        """One pass: expire, run timers, fill the lanes, look after what they wait for.

        Returns when the next pass is due if nothing wakes the sender before.
        """
        lines = self._accumulator.ready_queues
        self._accumulator.take_sealed(now)
        due = self._check_ages(now)
        lines.run_timers(now)
        due = min(due, self._fill(now))
        if self._accumulator.identity.wanted:
            self._on_identity_wanted()
        if lines.unbound and lines.has_no_reachable_leader:
            self._leaders.request_refresh(
                "no partition of a topic with waiting records has a leader"
            )
        if lines.leaderless:
            self._leaders.request_refresh(
                f"{len(lines.leaderless)} partitions with waiting records have no leader"
            )
        self._show_load(now)
        if due == NEVER:  # nothing was there when the pass began
            due = self._accumulator.incomplete.next_expiry() or NEVER
        timer = lines.next_timer()
        return due if timer is None else min(due, timer)

    def _fill(self, now: float) -> float:
        """Send to each broker while it takes requests; when to look again by oneself."""
        accumulator, max_bytes = self._accumulator, self._settings.max_request_size
        lines, due = accumulator.ready_queues, NEVER
        self._wakeup.clear()  # what is ready by now is seen now
        accumulator.binding.unbind_unsendable(now)
        if self.lanes.side_lanes:
            self.lanes.close_unused_side_lanes(accumulator.detours.side_lanes)
        while wanted := lines.lanes_with_work():
            self._wakeup.clear()  # what gets ready from here on may need another pass
            if not self._settings.adaptive:
                self._late_binder.rotate(now)
            large = any(queue.batches and queue.batches[0].large for queue in lines.unbound)
            survey = self.lanes.survey(wanted, large, lines.has_full_head, now)
            due = min(due, survey.next_look)
            requests = self._late_binder.drain(survey, max_bytes, now)
            if not requests:
                break
            for number, batches in requests.items():
                self._send(self.lanes.lane(number, now), survey.available[number], batches, now)
        return due

    def _send(
        self, lane: BrokerLane, connection: Connection, batches: list[ProducerBatch], now: float
    ) -> None:
        if not connection.in_flight:
            lane.ignore_disconnect = now - connection.last_used >= _IDLE
        try:
            self.lanes.probe_round_trip(lane, connection, now)
            sent = self._write(lane, connection, batches, now)
        except UnsupportedVersionError as error:
            for batch in batches:
                self._responses.fail(batch, error, now)
            return
        except KafkaError as error:
            for batch in batches:
                # With acks=0 the request may have been cut off half-way; else nothing was written.
                if not self._settings.acks:
                    batch.mark_uncertain()
                self._responses.retry(batch, error, now)
            return
        lane.primary.requests_sent += 1
        lane.primary.bytes_sent += sent
        self._count(batches, now)
        for batch in () if self._settings.acks else batches:
            # acks=0: written is all that will ever be known
            self._accumulator.incomplete.complete(batch, -1, -1, now)

    def _write(
        self, lane: BrokerLane, connection: Connection, batches: list[ProducerBatch], now: float
    ) -> int:
        """Write one Produce request; its size in bytes."""
        versions, settings = connection.api_versions, self._settings
        if versions is None:
            raise ProtocolError(f"the connection to {connection.node} has had no handshake")
        names: dict[bytes, str] = {}
        oldest, newest = self.produce_versions
        for batch in batches:
            topic, topic_id = batch.queue.topic, batch.topic_id
            if topic_id is None:  # an older broker told of the topic: all go by name
                newest = min(newest, FIRST_WITH_TOPIC_IDS - 1)
            else:
                names[topic_id] = topic.name
        version = versions.pick(ApiKey.PRODUCE, oldest, newest)
        by_id = version >= FIRST_WITH_TOPIC_IDS
        topics: dict[str | bytes, list[tuple[int, Buffer]]] = {}
        for batch in batches:
            queue = batch.queue
            asked = batch.topic_id if by_id and batch.topic_id else queue.topic.name
            topics.setdefault(asked, []).append((queue.partition, batch.buffer()))
        correlation_id = connection.next_correlation_id()
        buffers = encode_request(
            version,
            correlation_id,
            settings.client_id,
            settings.acks,
            int(settings.request_timeout * 1000),
            list(topics.items()),
            settings.transactional_id,
        )
        request = Request(lane, connection, batches, version, now, len(lane.in_flight), names)
        answered = partial(self._answered, request) if settings.acks else None
        size = connection.send(buffers, correlation_id, answered)
        if settings.acks:
            lane.in_flight.append(request)
        return size

    def _count(self, batches: list[ProducerBatch], now: float) -> None:
        metrics, records, observer = self._metrics, 0, self._accumulator.observer
        for batch in batches:
            if observer is not None:
                observer.on_sent(batch)
            topic, partition = batch.queue.tp
            records += batch.count
            self._leaders.add_topic(topic)  # it is in use
            if batch.attempts == 1:
                metrics.batch_sealed(topic, batch.count, batch.size, batch.raw_size)
            metrics.batch_sent(topic, batch.count, batch.size, now - batch.created, partition)
        metrics.produce_request(records)

    def _answered(
        self, request: Request, payload: memoryview | None, error: KafkaError | None
    ) -> None:
        now, lane = self._clock(), request.lane
        self.lanes.request_ended(request, now)
        try:
            self._judge(request, payload, error, now)
        except Exception as cause:  # noqa: BLE001 - no batch may stay in flight for ever
            _log.exception("handling the answer from broker %d failed", lane.node_id)
            reason = defect(f"handling the answer from broker {lane.node_id}", cause)
            self._responses.no_response([b for b in request.batches if b.in_flight], reason, now)
        finally:
            self.wake()

    def _judge(
        self,
        request: Request,
        payload: memoryview | None,
        error: KafkaError | None,
        now: float,
    ) -> None:
        lane = request.lane
        try:
            if payload is None:
                raise error or ProtocolError("an answer without content")
            result = decode_response(request.version, payload, request.names)
        except KafkaError as reason:
            if payload is not None:
                request.connection.close(reason)
            at_once = lane.ignore_disconnect and isinstance(reason, BrokerConnectionError)
            self._responses.no_response(request.batches, reason, now, at_once=at_once)
            return
        lane.ignore_disconnect = False
        silence = result.throttle_ms / 1000
        self._metrics.throttled(silence)
        failed = silence or [p for p in result.partitions if p.error_code]
        if not failed and self.lanes.loop_ran_freely_since(request.sent_at, now):
            self._record_latency(lane, request, now)
        if not failed:
            self.lanes.request_succeeded(request)
        if silence > 0:  # wanted by the broker from now on (KIP-219)
            request.connection.throttled_until = now + silence
        self._responses.response(request.batches, result, lane.node_id, now)

    def _record_latency(self, lane: BrokerLane, request: Request, now: float) -> None:
        latency = now - request.sent_at
        if not lane.overdue(latency):  # a stall says nothing about the broker's speed
            lane.window.on_response(latency, request.ahead)
        lane.record_latency(latency, now)

    # --- time ---------------------------------------------------------------------------------

    def _check_ages(self, now: float) -> float:
        """See to it that records live about as long as they may; when to look again."""
        incomplete = self._accumulator.incomplete
        due = incomplete.next_expiry()
        if due is None:
            self._expiry_seen = None
            return NEVER
        if now < due:
            self._expiry_seen = None
        else:
            due = self._expire(now)
        if now >= self._next_look:
            next_due = incomplete.close_old(now, self._growth)
            self._next_look = max(next_due, now + _SHORTEST_LOOK)
        return min(due, self._next_look)

    def _expire(self, now: float) -> float:
        """Fail what is too old, at the second look; when to look again."""
        if self._expiry_seen is None:
            self._expiry_seen = now
        if now < self._expiry_seen + _SECOND_LOOK:
            return self._expiry_seen + _SECOND_LOOK
        self._expiry_seen = None
        incomplete = self._accumulator.incomplete
        incomplete.expire(now, partial(self._expired, now=now))
        return incomplete.next_expiry() or NEVER

    def _expired(self, batch: ProducerBatch, now: float) -> KafkaError:
        age = now - batch.created
        if not batch.attempts:
            self._metrics.batch_expired(age)
        self._metrics.records_failed(batch.result.topic, batch.count)
        cause = self._connections.connection_error(batch.queue.leader)
        return delivery_timeout(batch, age, self._settings.delivery_timeout, cause)

    # --- the load that partitions are chosen by -----------------------------------------------

    def _show_load(self, now: float) -> None:
        """Tell of the end of the pass, and of the outages of this moment."""
        if self._settings.adaptive:
            if self._settings.availability_timeout > 0:
                lines = self._accumulator.ready_queues
                self._unavailable = self.lanes.kip794_unavailable(lines, self._unavailable, now)
            self._accumulator.end_pass(self._unavailable)
