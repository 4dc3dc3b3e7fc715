"""What becomes of the batches of a request, by one table of the brokers' error codes."""

from __future__ import annotations

import logging
from enum import Enum
from typing import TYPE_CHECKING

from kafkaclient.broker_errors import BROKER_ERRORS
from kafkaclient.cluster.backoff import exponential_s
from kafkaclient.cluster.view import LeaderHint
from kafkaclient.errors import KafkaError, ProtocolError, counted, defect
from kafkaclient.log_fields import log_fields
from kafkaclient.producer.batches.delivery_errors import (
    rejected_records,
    rejection,
    split_after_uncertain_write,
    too_large,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from random import Random

    from kafkaclient.cluster.metadata import Metadata
    from kafkaclient.metrics.producer import ProducerMetrics
    from kafkaclient.producer.accumulator.incomplete import IncompleteBatches
    from kafkaclient.producer.batches.batch import ProducerBatch
    from kafkaclient.producer.batches.idempotence import ProducerIdentity
    from kafkaclient.producer.sender.liveness import Misrouting
    from kafkaclient.producer.sender.producer_ids import FatalErrors
    from kafkaclient.producer.settings import RetrySettings
    from kafkaclient.wire.api import BrokerInfo
    from kafkaclient.wire.produce import PartitionResult, ProduceResult


# --- What a broker's answer means for a batch: one table of error codes ---------------------------
# Source: Java's ``Sender.completeBatch``/``canRetry`` and ``TransactionManager.canRetry``. A code
# that is not listed is retried if Kafka calls it retriable, and fails the batch otherwise. Unlike
# Java's, this producer survives CLUSTER_AUTHORIZATION_FAILED (from brokers before 3.0 that
# withdrew the permission for idempotence), as it does when it requests its producer id.
#
# INVALID_PRODUCER_EPOCH (47) means that the epoch is old. Without a transaction the next epoch
# repairs that. In a transaction the batch fails, and with it the transaction: the leader does not
# know why the epoch is old. PRODUCER_FENCED (90): another producer has the transactional id.


class ErrorAction(Enum):
    """What happens to a batch next."""

    DONE = "the batch is in the log"
    RETRY = "send it again after a back-off, with the same sequence"
    SPLIT = "halve it and send the parts; a lone record fails"
    RESEQUENCE = (
        "the broker expects another sequence: retry; the partition's oldest batch also gets a new "
        "epoch"
    )
    FAIL = "the batch fails, and an open transaction can only be aborted; the producer goes on"
    FATAL = "the batch fails; the producer cannot go on"


_TABLE: dict[int, ErrorAction] = {
    0: ErrorAction.DONE,
    10: ErrorAction.SPLIT,  # MESSAGE_TOO_LARGE
    18: ErrorAction.FAIL,  # RECORD_LIST_TOO_LARGE: larger than a segment; only 10 is halved
    45: ErrorAction.RESEQUENCE,  # OUT_OF_ORDER_SEQUENCE_NUMBER
    46: ErrorAction.DONE,  # DUPLICATE_SEQUENCE_NUMBER: written before, its offset is forgotten
    47: ErrorAction.RESEQUENCE,  # INVALID_PRODUCER_EPOCH: not written; a new epoch helps (KIP-360)
    49: ErrorAction.FATAL,  # INVALID_PRODUCER_ID_MAPPING: as the coordinator says (KAFKA-18019)
    59: ErrorAction.RESEQUENCE,  # UNKNOWN_PRODUCER_ID
    90: ErrorAction.FATAL,  # PRODUCER_FENCED
}

# Answers which show that the producer's metadata is stale: they request a refresh.
REFRESH_CODES = frozenset({3, 5, 6, 13, 56, 72, 74, 75, 100, 103})

# Errors after which the batch may be in the log nevertheless: the broker failed at an unknown
# point, waited too long for replicas, or lost the partition while it waited (3, 6 and 56 are
# answered also after the append: Java's DelayedProduce and checkEnoughReplicasReachOffset).
AMBIGUOUS_CODES = frozenset({-1, 3, 6, 7, 13, 20, 56})


def is_ambiguous(code: int) -> bool:
    """Whether the batch may be in the log despite this error; also with a code that this client
    does not know."""
    return code in AMBIGUOUS_CODES or code not in BROKER_ERRORS


def action_for(code: int) -> ErrorAction:
    """What happens to a batch whose Produce response carries ``code`` (0: no error)."""
    known = _TABLE.get(code)
    if known is not None:
        return known
    _, retriable, _, _ = BROKER_ERRORS.get(code, ("", False, None, ""))
    return ErrorAction.RETRY if retriable else ErrorAction.FAIL


# --- What becomes of the batches of a Produce request when its response comes ---------------------

_log = logging.getLogger(__name__)

_INVALID_PRODUCER_EPOCH = 47
_NOT_LEADER = 6
_SENT_AGAIN = (ErrorAction.RETRY, ErrorAction.SPLIT, ErrorAction.RESEQUENCE)


class ResponseHandler:
    """Has each batch completed, retried, split or failed. ``fatal_errors`` is told if the
    producer cannot go on."""

    def __init__(
        self,
        incomplete: IncompleteBatches,
        identity: ProducerIdentity,
        metadata: Metadata,
        settings: RetrySettings,
        metrics: ProducerMetrics,
        misrouting: Misrouting,
        fatal_errors: FatalErrors,
        *,
        rng: Random,
    ) -> None:
        self._misrouting = misrouting
        self._incomplete = incomplete
        self._identity = identity
        self._metadata = metadata
        self._settings = settings
        self._metrics = metrics
        self._rng = rng
        self._fatal_errors = fatal_errors

    def no_response(
        self,
        batches: Sequence[ProducerBatch],
        error: KafkaError,
        now: float,
        *,
        at_once: bool = False,
    ) -> None:
        """No response came: each batch may have been written or not.

        ``at_once`` retries without a pause and without counting the retry: the connection had been
        idle or was closed here, so its end says nothing about the broker.
        """
        for batch in batches:
            batch.mark_uncertain()
            try:
                self.retry(batch, error, now, at_once=at_once)
            except Exception as problem:  # noqa: BLE001 - it costs no other batch
                self._internal_error(batch, problem, now)
        self._metadata.request_refresh(f"a Produce request went unanswered: {error}")

    def response(
        self, batches: Sequence[ProducerBatch], result: ProduceResult, node_id: int, now: float
    ) -> None:
        """Broker ``node_id`` has responded to the request with these batches."""
        answers: dict[tuple[str, int], PartitionResult] = {}
        hinted = False
        for answer in result.partitions:
            answers[answer.topic, answer.partition] = answer
            hinted |= answer.leader_id >= 0
        if hinted:  # first, so that a retry knows its new leader (KIP-951)
            self._apply_leader_hints(batches, answers, result.endpoints)
        for batch in batches:
            known = answers.get((batch.result.topic, batch.result.partition))
            try:
                if known is None:
                    self._missing_from_response(batch, node_id, now)
                elif known.error_code:
                    self._apply_error(batch, known, node_id, now)
                else:
                    if self._misrouting.suspects:
                        self._misrouting.succeeded(node_id)
                    self._complete(batch, known, now)
            except Exception as problem:  # noqa: BLE001 - it costs no other batch
                self._internal_error(batch, problem, now)

    def _complete(self, batch: ProducerBatch, answer: PartitionResult, now: float) -> None:
        appended_at, log_start = answer.log_append_time_ms, answer.log_start_offset
        self._incomplete.complete(batch, answer.base_offset, appended_at, now, log_start)

    def _apply_leader_hints(
        self,
        batches: Sequence[ProducerBatch],
        answers: Mapping[tuple[str, int], PartitionResult],
        endpoints: Sequence[BrokerInfo],
    ) -> None:
        hints = []
        for batch in batches:
            answer = answers.get((batch.result.topic, batch.result.partition))
            # The epochs of a deleted topic mean nothing for its successor of the same name.
            if answer is None or not answer.error_code or batch.sent_to_deleted_topic:
                continue
            if answer.leader_id >= 0:
                topic, partition = answer.topic, answer.partition
                hints.append(LeaderHint(topic, partition, answer.leader_id, answer.leader_epoch))
        if hints:
            self._metadata.apply_leaders(hints, endpoints)

    def _missing_from_response(self, batch: ProducerBatch, node_id: int, now: float) -> None:
        batch.mark_uncertain()
        tp = batch.queue.tp
        missing = ProtocolError(f"broker {node_id} left {tp} out of its answer to a Produce")
        self.retry(batch, missing, now)

    def _internal_error(self, batch: ProducerBatch, cause: Exception, now: float) -> None:
        """A defect in handling one batch's answer costs that batch and no other."""
        tp = batch.queue.tp
        _log.error(
            "handling the answer for %r failed",
            batch,
            exc_info=cause,
            extra=log_fields(topic=tp.topic, partition=tp.partition, maybe_written=True),
        )
        what = (
            f"handling the broker's answer for {counted(batch.count, 'record')} to "
            f"{batch.queue.tp}, which may have been written,"
        )
        self._incomplete.fail_and_free(batch, defect(what, cause), now)

    def retry(
        self, batch: ProducerBatch, error: KafkaError, now: float, at_once: bool = False
    ) -> None:
        """Send the batch again after its back-off, unless its retries are used up."""
        error.with_traceback(None)  # its frames would keep the request in memory
        pause = 0.0
        if not batch.result.done:
            used_up = batch.retries >= self._settings.retries and not at_once
            if used_up or self._identity.abort_only:
                self.fail(batch, error, now)
                return
            self._metrics.records_retried(batch.result.topic, batch.count)
            pause = 0.0 if at_once else self._backoff(batch)
        self._incomplete.retry(batch, error, now + pause, now, counts=not at_once)

    def fail(
        self,
        batch: ProducerBatch,
        error: KafkaError,
        now: float,
        record_errors: dict[int, KafkaError] | None = None,
    ) -> None:
        """The batch has failed finally; ``record_errors`` has the rejected records' errors."""
        error.with_traceback(None)  # as in retry()
        if not batch.result.done:
            self._metrics.records_failed(batch.result.topic, batch.count)
        self._incomplete.fail(batch, error, now, record_errors)

    def _apply_error(
        self, batch: ProducerBatch, answer: PartitionResult, node_id: int, now: float
    ) -> None:
        code = answer.error_code
        action = self._action_for(code)
        if action is ErrorAction.DONE:
            self._complete(batch, answer, now)
            return
        error = rejection(batch, answer, node_id)
        if is_ambiguous(code):
            batch.mark_uncertain()
        if code in REFRESH_CODES:
            self._metadata.request_refresh(str(error))
            self._check_route(batch, code, node_id, now)
        if batch.result.done:  # it expired meanwhile: only its place in the sequence matters
            self._incomplete.retry(batch, error, now, now)
        elif action is ErrorAction.SPLIT and batch.count > 1 and not batch.atomic:
            self._metrics.batch_split()
            self._incomplete.split(batch, now)
        elif (
            action is ErrorAction.RESEQUENCE
            and batch.split_after_uncertain_write
            and batch.queue.is_oldest(batch)
        ):
            # The log has the whole batch already, or has lost records before it. In both cases the
            # leader will never accept this half.
            self.fail(batch, split_after_uncertain_write(batch, error), now)
        elif action is ErrorAction.RESEQUENCE and self._can_resequence(batch, code):
            self._metrics.records_retried(batch.result.topic, batch.count)
            self._incomplete.resequence(batch, error, now + self._backoff(batch), now)
        elif action is ErrorAction.RETRY:
            self.retry(batch, error, now)
        else:
            final = too_large(batch, error) if action is ErrorAction.SPLIT else error
            self._fail_rejected(batch, answer, final, now)
            if action is ErrorAction.FATAL and batch.stamped:  # else only this batch was rejected
                self._fatal_errors.fail_producer(error)

    def _action_for(self, code: int) -> ErrorAction:
        action = action_for(code)
        # A transaction that can only be aborted sends nothing more: a batch that waits to be sent
        # would have no outcome.
        doomed = action in _SENT_AGAIN and self._identity.abort_only
        return ErrorAction.FAIL if doomed else action

    def _check_route(self, batch: ProducerBatch, code: int, node_id: int, now: float) -> None:
        queue = batch.queue
        is_leader = queue.leader == node_id and queue.leader_epoch == batch.leader_epoch
        if code == _NOT_LEADER and is_leader:
            self._misrouting.refused(node_id, now)

    def _fail_rejected(
        self, batch: ProducerBatch, answer: PartitionResult, error: KafkaError, now: float
    ) -> None:
        """Fail the rejected records, and send the others again; all if they cannot be separated,
        or if their transaction has to be aborted anyway."""
        if batch.atomic:
            self.fail(batch, error, now)
            return
        rejected = rejected_records(answer, batch)
        accepted = batch.count - len(rejected)
        aborting = self._identity.transactional
        if not rejected or not accepted or batch.maybe_written or aborting:
            self.fail(batch, error, now, rejected or None)
            return
        # Which records share a batch is chance: the accepted ones don't fail for it. Java's do.
        self._metrics.records_failed(batch.result.topic, len(rejected))
        self._metrics.records_retried(batch.result.topic, accepted)
        self._incomplete.retry_without_rejected(batch, rejected, error, now)

    def _can_resequence(self, batch: ProducerBatch, code: int) -> bool:
        """Whether the sequence goes on with a new epoch, or with the batch that is missing. In a
        transaction only the coordinator raises the epoch, when the transaction is aborted."""
        if self._identity.transactional:
            return code != _INVALID_PRODUCER_EPOCH and not batch.queue.is_oldest(batch)
        return batch.stamped

    def _backoff(self, batch: ProducerBatch) -> float:
        if batch.queue.leader_epoch > batch.leader_epoch:
            return 0.0  # a newer leader is known already: send to it at once
        settings = self._settings
        return exponential_s(
            batch.attempts, settings.retry_backoff, settings.retry_backoff_max, self._rng
        )
