"""The producer id and epoch: a transaction's identity, and the requests for a new id.

Since Kafka 2.8 the permission to write to any topic is enough (KIP-679); before, it took
IdempotentWrite on the cluster. A refusal fails only the records that wait for the id: permissions
may be granted while the producer runs (Java: ``Sender.shouldHandleAuthorizationError``).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kafkaclient.broker_errors import broker_error, denied
from kafkaclient.cluster.backoff import retry_pause_s, until_answered
from kafkaclient.errors import (
    AuthorizationError,
    KafkaError,
    ProducerFencedError,
    UnsupportedVersionError,
)
from kafkaclient.log_fields import log_fields
from kafkaclient.producer.batches.idempotence import ProducerIdentity
from kafkaclient.wire.producer_ids import InitProducerIdCall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from random import Random

    from kafkaclient.cluster.router import Router
    from kafkaclient.cluster.waits import Waits
    from kafkaclient.config import ProducerConfig
    from kafkaclient.producer.batches.idempotence import PartitionSequence
    from kafkaclient.wire.producer_ids import InitProducerIdResult


# --- The producer id and epoch of a transactional producer ----------------------------------------


class TransactionalIdentity(ProducerIdentity):
    """The identity that the coordinator assigns. Batches may leave while a transaction is open.

    ``on_sequence_gap(error)`` is called when a partition's sequence cannot go on within the
    transaction.
    """

    __slots__ = ("_on_sequence_gap", "open")

    transactional = True

    def __init__(self, on_sequence_gap: Callable[[KafkaError], None]) -> None:
        super().__init__(enabled=True)
        self._on_sequence_gap = on_sequence_gap
        self.open: bool = False
        """Whether batches may leave."""

    @property
    def valid(self) -> bool:
        return self.open

    @property
    def wanted(self) -> bool:
        return False

    def forget_sequences(self, sequences: Iterable[PartitionSequence]) -> bool:
        # Only the coordinator raises the epoch. With transactions v2 each transaction has its own.
        return not any(sequence.is_of(self) for sequence in sequences)

    def raise_epoch(self) -> bool:
        # A gap within a transaction is not repaired: aborting the transaction brings a new epoch.
        self._on_sequence_gap(
            KafkaError(
                "a partition's log does not continue this producer's records: the topic was "
                "deleted and created again, or records are missing"
            )
        )
        return False


# --- Fetches a producer id when one is wanted -----------------------------------------------------

_log = logging.getLogger(__name__)

_REFUSALS = (ProducerFencedError, UnsupportedVersionError)


class ProducerIdFetcher:
    """``on_assigned()`` is called when the identity has a new id, ``on_denied(error)`` when the
    user lacks the permission (:meth:`ensure` starts another request), ``on_fatal(error)`` when the
    cluster has no idempotence, ``on_failed(why)`` after each failed request, and ``on_crash(what,
    error)`` when the task has ended otherwise (``error`` None: it was cancelled)."""

    def __init__(
        self,
        identity: ProducerIdentity,
        router: Router,
        config: ProducerConfig,
        *,
        rng: Random,
        waits: Waits,
        on_assigned: Callable[[], None],
        on_denied: Callable[[KafkaError], None],
        on_fatal: Callable[[KafkaError], None],
        on_failed: Callable[[str], None],
        on_crash: Callable[[str, BaseException | None], None],
    ) -> None:
        self._identity = identity
        self._router = router
        self._config = config
        self._rng = rng
        self._waits = waits
        self._on_assigned = on_assigned
        self._on_denied = on_denied
        self._on_fatal = on_fatal
        self._on_failed = on_failed
        self._on_crash = on_crash
        self.refusals = 0
        """How many requests in a row were refused."""
        self._task: asyncio.Task[None] | None = None

    def ensure(self) -> None:
        """Start a request if an id is wanted and no request is under way."""
        if self._identity.wanted and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(
                self._fetch(), name="kafkaclient-producer-id"
            )
            self._task.add_done_callback(self._ended)

    def restart(self) -> None:
        """Start a request, and ignore the answer to the one under way, of a former cluster."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
        self.ensure()

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task is not self._task:
            return  # closed
        error = None if task.cancelled() else task.exception()
        if task.cancelled() or error is not None:
            self._on_crash("the request for a producer id", error)

    async def _fetch(self) -> None:
        if self.refusals:  # each record that is sent calls ensure()
            await self._pause(self.refusals)
        what = "a producer id (idempotence), without which nothing is sent"
        try:
            answer = await until_answered(self._ask, self._before_retry, self._waits, what)
        except AuthorizationError as error:
            if not self.refusals:
                _log.error(
                    "records fail until there is a producer id: %s", error, extra=log_fields(error)
                )
            self.refusals += 1
            self._on_denied(error)
        except _REFUSALS as error:
            self._on_fatal(error)
        else:
            self.refusals = 0
            self._identity.assign(answer.producer_id, answer.producer_epoch)
            self._on_assigned()

    async def _ask(self) -> InitProducerIdResult:
        answer = await self._router.call(InitProducerIdCall())
        if answer.error_code:
            advice = denied(answer.error_code, "IdempotentWrite")
            if advice:
                advice += ", and so does Write on any topic, since Kafka 2.8"
            raise broker_error(
                answer.error_code, "requesting a producer id (idempotence)", advice=advice
            )
        return answer

    async def _before_retry(self, error: KafkaError, failures: int) -> None:
        # A cluster that starts or restarts answers with all kinds of errors, including
        # UNKNOWN_SERVER_ERROR. Only a clear refusal ends the producer.
        if isinstance(error, (AuthorizationError, *_REFUSALS)):
            raise error
        _log.debug("no producer id yet: %s", error)
        self._on_failed(f"no producer id yet: {error}")
        await self._pause(failures)

    async def _pause(self, failures: int) -> None:
        await asyncio.sleep(retry_pause_s(failures, self._config, self._rng))
