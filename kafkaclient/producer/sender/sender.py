"""Drains the accumulator into the brokers' lanes.

Java: ``Sender``. All decisions of a pass are made in :meth:`Sender.run_once`, which neither waits
nor reads a clock, so that tests can drive it by hand.
"""

from __future__ import annotations

import logging
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from kafkaclient.errors import (
    BrokerConnectionError,
    KafkaError,
    ProtocolError,
    UnsupportedVersionError,
    defect,
)
from kafkaclient.log_fields import log_fields
from kafkaclient.producer.batches.delivery_errors import delivery_timeout
from kafkaclient.producer.sender.batch_drainer import BatchDrainer
from kafkaclient.producer.sender.broker_lane import ProduceRequest
from kafkaclient.producer.sender.broker_lanes import BrokerLanes, Kip794Outages
from kafkaclient.producer.sender.in_flight_window import probe_round_trip
from kafkaclient.producer.sender.late_answers import ALL, LateAnswers
from kafkaclient.producer.sender.liveness import BrokerLiveness, Misrouting
from kafkaclient.producer.sender.responses import ResponseHandler
from kafkaclient.producer.settings import MAX_OPEN_SHARE, NEVER
from kafkaclient.producer.wakeup import LoopMonitor
from kafkaclient.wire.api import ApiKey
from kafkaclient.wire.produce import (
    FIRST_WITH_TOPIC_IDS,
    MAX_VERSION,
    MIN_VERSION,
    decode_response,
    encode_request,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from random import Random

    from kafkaclient.cluster.metadata import Metadata
    from kafkaclient.cluster.router import Router
    from kafkaclient.metrics.producer import ProducerMetrics
    from kafkaclient.net.connection import Connection
    from kafkaclient.producer.accumulator.accumulator import RecordAccumulator
    from kafkaclient.producer.batches.batch import ProducerBatch
    from kafkaclient.producer.batches.topic_buffer import TopicBuffer
    from kafkaclient.producer.sender.broker_lane import BrokerLane
    from kafkaclient.producer.sender.producer_ids import FatalErrors, ProducerIdFetcher
    from kafkaclient.producer.settings import SenderSettings
    from kafkaclient.producer.wakeup import Wakeup
    from kafkaclient.types import Buffer

_log = logging.getLogger(__name__)

_error_code = attrgetter("error_code")
_PRODUCE = ApiKey.PRODUCE  # an Enum's member costs a Python call before Python 3.12

# Deadlines that passed while the event loop was blocked are judged again after this many seconds:
# the socket may hold the answer.
_SECOND_LOOK_S = 0.01
_CLOSE_OLD_INTERVAL_S = 0.05  # how often old batches are closed at most
_IDLE_S = 1.0  # a broker may have closed a connection that was silent for this many seconds


class Sender:
    """Sends what is ready, has answers handled, and sleeps until there is something to do.

    ``wakeup`` runs the passes; the accumulator wakes it when there is something to do.
    ``fatal_errors`` is told when the producer cannot go on.
    """

    def __init__(
        self,
        accumulator: RecordAccumulator,
        metadata: Metadata,
        router: Router,
        settings: SenderSettings,
        metrics: ProducerMetrics,
        wakeup: Wakeup,
        producer_ids: ProducerIdFetcher,
        fatal_errors: FatalErrors,
        *,
        clock: Callable[[], float],
        rng: Random,
    ) -> None:
        self._accumulator = accumulator
        self._incomplete = accumulator.incomplete
        self._ready_queues = accumulator.ready_queues
        self._metadata = metadata
        self._router = router
        self._settings = settings
        self._metrics = metrics
        self._clock = clock
        self._producer_ids = producer_ids
        self.misrouting = Misrouting(metadata, router)
        self._responses = ResponseHandler(
            accumulator.incomplete,
            accumulator.identity,
            metadata,
            settings.retrying,
            metrics,
            self.misrouting,
            fatal_errors,
            rng=rng,
        )
        self.produce_versions = (MIN_VERSION, MAX_VERSION)
        """The oldest and the newest version of Produce to speak. Assigned again once the cluster's
        version of transactions is known."""
        self._closing = False
        self._expiry_first_seen_at: float | None = None
        """When a deadline was first found to have passed."""
        self._open_for = MAX_OPEN_SHARE * settings.delivery_timeout
        self._close_old_at = 0.0
        self._drainer = BatchDrainer(
            accumulator.ready_queues,
            accumulator.binding,
            accumulator.compressor,
            accumulator.incomplete,
            accumulator.identity,
            accumulator.buffer_pool,
        )
        self._wakeup = wakeup
        detours = accumulator.detours if settings.acks == ALL else None
        self.liveness = BrokerLiveness(router, detours, wakeup, clock=clock)
        self.lanes = BrokerLanes(router, metadata, settings, self.liveness, accumulator)
        self._late_answers = LateAnswers(
            self.lanes, self.liveness, router, metadata, settings, wakeup
        )
        self.loop_monitor = LoopMonitor(clock, metrics, on_tick=self._on_tick)
        """Runs while there are batches; the first batch starts it, also while the batch lingers."""
        self._outages: Kip794Outages | None = None
        if settings.adaptive and settings.availability_timeout > 0:
            self._outages = Kip794Outages(self.lanes, router, settings.availability_timeout)
        # Assigned here because the accumulator exists before the sender.
        accumulator.conditions.brokers = self.lanes

    # --- the loop -----------------------------------------------------------------------------

    def run(self) -> Coroutine[Any, Any, None]:
        """Run until :meth:`close`; the caller keeps the task and handles its exception."""
        return self._wakeup.run(self.run_once)

    def close(self) -> None:
        """End :meth:`run` after the pass under way."""
        self._closing = True
        self.loop_monitor.stop()
        self.liveness.close()
        self._wakeup.stop()

    def _on_tick(self, now: float) -> bool:
        """Look after late answers; whether there is still something to wait for."""
        self._late_answers.check(self.loop_monitor.unblocked_since(now), now)
        return bool(self._incomplete)

    def run_once(self, now: float) -> float:
        """One pass: expire batches, run timers, send what can be sent.

        Returns when the next pass is due if nothing wakes the sender before.
        """
        ready_queues = self._ready_queues
        self._accumulator.take_sealed(now)
        due = self._expire_and_close_old(now)
        ready_queues.run_timers(now)
        due = min(due, self._fill(now))
        if self._accumulator.identity.wanted:
            self._producer_ids.ensure()
        if ready_queues.unbound and ready_queues.has_no_reachable_leader:
            self._metadata.request_refresh(
                "no partition of a topic with waiting records has a leader"
            )
        if ready_queues.leaderless:
            self._metadata.request_refresh(
                f"{len(ready_queues.leaderless)} partitions with waiting records have no leader"
            )
        if self._settings.adaptive:
            outages = self._outages
            self._accumulator.end_pass(outages.update(ready_queues, now) if outages else ())
        if due == NEVER:  # there was none at first; a callback may have sent
            due = self._incomplete.next_expiry() or NEVER
        timer = ready_queues.next_timer()
        return due if timer is None else min(due, timer)

    def _fill(self, now: float) -> float:
        """Send to each broker while it takes requests; returns when to survey again unasked."""
        accumulator, ready_queues, due = self._accumulator, self._ready_queues, NEVER
        self._wakeup.clear()  # this pass sees what is ready by now
        settled_at = self.loop_monitor.settled_at(now)
        if settled_at > now:
            return settled_at
        accumulator.binding.unbind_unsendable(now)
        if self.lanes.side_lanes:
            self.lanes.close_unused_side_lanes(accumulator.detours.side_lanes)
        while wanted := ready_queues.lanes_with_work():
            self._wakeup.clear()  # what gets ready from here on may need another pass
            if not self._settings.adaptive:
                self._drainer.rotate(now)
            unblocked_since = self.loop_monitor.unblocked_since(now)
            survey = self.lanes.survey(wanted, ready_queues, unblocked_since, now)
            if self._outages is not None:
                self._outages.surveyed(wanted, survey.available, now)
            due = min(due, survey.next_look)
            requests = self._drainer.drain(survey, self._settings.max_request_size, now)
            if not requests:
                break
            for number, batches in requests.items():
                self._send(self.lanes.lane(number, now), survey.available[number], batches, now)
        return due

    # --- requests -------------------------------------------------------------------------------

    def _send(
        self, lane: BrokerLane, connection: Connection, batches: list[ProducerBatch], now: float
    ) -> None:
        if not connection.in_flight:
            lane.ignore_disconnect = now - connection.last_used >= _IDLE_S
        try:
            if lane.window.is_probe_due(now):
                measure, client_id = self.loop_monitor.seconds_since, self._settings.client_id
                probe_round_trip(lane.window, connection, client_id, measure, now)
            self._write(lane, connection, batches, now)
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
        self._count(batches, now)
        if not self._settings.acks:
            for batch in batches:  # nothing more will be known about them
                self._incomplete.complete(batch, -1, -1, now)

    def _write(
        self, lane: BrokerLane, connection: Connection, batches: list[ProducerBatch], now: float
    ) -> None:
        """Write one Produce request."""
        versions, settings = connection.api_versions, self._settings
        if versions is None:
            raise ProtocolError(f"the connection to {connection.node} has had no handshake")
        by_topic: dict[TopicBuffer, list[tuple[int, Buffer]]] = {}
        for batch in batches:
            queue = batch.queue
            by_topic.setdefault(queue.topic, []).append((queue.partition, batch.builder.buffer()))
        names = {topic.topic_id: topic.name for topic in by_topic if topic.topic_id is not None}
        oldest, newest = self.produce_versions
        if len(names) < len(by_topic):  # an older broker has no ids: the request names every topic
            newest = min(newest, FIRST_WITH_TOPIC_IDS - 1)
        version = versions.pick(_PRODUCE, oldest, newest)
        by_id = version >= FIRST_WITH_TOPIC_IDS
        topics = [
            (topic.topic_id if by_id and topic.topic_id else topic.name, partitions)
            for topic, partitions in by_topic.items()
        ]
        correlation_id = connection.next_correlation_id()
        buffers = encode_request(
            version,
            correlation_id,
            settings.client_id,
            settings.acks,
            int(settings.request_timeout * 1000),
            topics,
            settings.transactional_id,
        )
        request = None
        if settings.acks:
            request = ProduceRequest(
                correlation_id, self._on_response, now, lane, connection, batches, version, names
            )
        lane.request_sent(request, connection.send(buffers, request))

    def _count(self, batches: list[ProducerBatch], now: float) -> None:
        metrics, records, observer = self._metrics, 0, self._accumulator.observer
        for batch in batches:
            if observer is not None:
                observer.on_sent(batch)
            topic, partition = batch.queue.tp
            count, size = batch.result.count, batch.sealed_size
            records += count
            self._metadata.add_topic(topic)  # it is in use
            raw_size = batch.builder.size if batch.attempts == 1 else None
            metrics.batch_sent(topic, count, size, now - batch.created, partition, raw_size)
        metrics.produce_request(records)

    # --- responses ------------------------------------------------------------------------------

    def _on_response(
        self, request: ProduceRequest, payload: memoryview | None, error: KafkaError | None
    ) -> None:
        # It is passed as a value: a cpdef would be passed without its object.
        self._answered(request, payload, error)

    def _answered(
        self, request: ProduceRequest, payload: memoryview | None, error: KafkaError | None
    ) -> None:
        now = self._clock()
        unblocked_since = self.loop_monitor.unblocked_since(now)
        lane = request.lane
        lane.pop_in_flight(now)
        if request.connection.closed or lane.state.exclusion_reason is not None:
            self._late_answers.request_ended(request, unblocked_since, now)
        try:
            self._handle(request, payload, error, unblocked_since, now)
        except Exception as cause:  # noqa: BLE001 - no batch may stay without an outcome
            node_id = lane.node_id
            _log.exception(
                "handling the answer from broker %d failed",
                node_id,
                extra=log_fields(broker=node_id),
            )
            reason = defect(f"handling the answer from broker {node_id}", cause)
            self._responses.no_response([b for b in request.batches if b.in_flight], reason, now)
        finally:
            self._wakeup.wake_at()

    def _handle(
        self,
        request: ProduceRequest,
        payload: memoryview | None,
        error: KafkaError | None,
        unblocked_since: float,
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
        throttle = result.throttle_ms / 1000
        self._metrics.throttled(throttle)
        if throttle > 0:  # the broker asks for silence from now on (KIP-219)
            request.connection.throttled_until = now + throttle
        if not throttle and not any(map(_error_code, result.partitions)):
            if unblocked_since <= request.sent_at:
                lane.record_latency(now - request.sent_at, request.ahead, now)
            if self.liveness.suspected_at:
                self._late_answers.request_succeeded(request)
        self._responses.response(request.batches, result, lane.node_id, now)

    # --- time ---------------------------------------------------------------------------------

    def _expire_and_close_old(self, now: float) -> float:
        """Fail batches past the delivery timeout, and close open batches that have taken records
        for long enough. Returns when to look again."""
        due = self._incomplete.next_expiry()
        if due is None:
            self._expiry_first_seen_at = None
            return NEVER
        if now < due:
            self._expiry_first_seen_at = None
        else:
            due = self._expire(now)
        if now >= self._close_old_at:
            close_at = self._incomplete.close_old(now, self._open_for)
            self._close_old_at = max(close_at, now + _CLOSE_OLD_INTERVAL_S)
        return min(due, self._close_old_at)

    def _expire(self, now: float) -> float:
        """Fail the expired batches, at the second look; returns when to look again. Those that were
        never sent fail at the first look: no answer is on its way, and they are not sent now."""
        if self._expiry_first_seen_at is None:
            self._expiry_first_seen_at = now
        second_look = now >= self._expiry_first_seen_at + _SECOND_LOOK_S
        while batch := self._incomplete.next_expired(now):
            if batch.attempts and not second_look:
                return self._expiry_first_seen_at + _SECOND_LOOK_S
            self._fail_expired(batch, now)
        self._expiry_first_seen_at = None
        return self._incomplete.next_expiry() or NEVER

    def _fail_expired(self, batch: ProducerBatch, now: float) -> None:
        age = now - batch.created
        if not batch.attempts:
            self._metrics.expired_in_queue(age)
        self._metrics.records_failed(batch.result.topic, batch.count)
        cause = self._router.connection_error(batch.queue.leader) or self._metadata.last_error
        error = delivery_timeout(batch, age, self._settings.delivery_timeout, cause)
        self._incomplete.fail_without_answer(batch, error, now)
