"""Requests a producer id when one is wanted.

Since Kafka 2.8 the permission to write to any topic is enough (KIP-679); before, it took
IdempotentWrite on the cluster. A refusal fails only the records that wait for the id: permissions
may be granted while the producer runs (Java: ``Sender.shouldHandleAuthorizationError``).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

from kafkaclient.broker_errors import broker_error, denied
from kafkaclient.cluster.backoff import retry_pause_s, until_answered
from kafkaclient.errors import (
    AuthorizationError,
    KafkaError,
    ProducerFencedError,
    UnsupportedVersionError,
)
from kafkaclient.log_fields import log_fields
from kafkaclient.wire.producer_ids import InitProducerIdCall

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from kafkaclient.cluster.metadata import Metadata
    from kafkaclient.cluster.router import Router
    from kafkaclient.config import ProducerConfig
    from kafkaclient.producer.accumulator.accumulator import RecordAccumulator
    from kafkaclient.producer.wakeup import Wakeup
    from kafkaclient.wire.producer_ids import InitProducerIdResult

_log = logging.getLogger(__name__)

_REFUSALS = (ProducerFencedError, UnsupportedVersionError)


class FatalErrors(Protocol):
    """Is told of errors after which the producer cannot go on (``ProducerRuntime``)."""

    def fail_producer(self, error: KafkaError) -> None:
        """Fail everything pending, and every further send, with ``error``."""

    def crashed(self, what: str, error: BaseException | None) -> None:
        """A task that the producer needs has ended; without an error it was cancelled."""


class ProducerIdFetcher:
    """Assigns the id to the accumulator's identity. Batches that wait for the id fail if the user
    lacks the permission; the next batch starts another request (:meth:`ensure`)."""

    def __init__(
        self,
        accumulator: RecordAccumulator,
        router: Router,
        metadata: Metadata,
        config: ProducerConfig,
        wakeup: Wakeup,
        fatal_errors: FatalErrors,
        *,
        clock: Callable[[], float],
        rng: Random,
    ) -> None:
        self._accumulator = accumulator
        self._identity = accumulator.identity
        self._router = router
        self._metadata = metadata
        self._config = config
        self._wakeup = wakeup
        self._fatal_errors = fatal_errors
        self._clock = clock
        self._rng = rng
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
            self._fatal_errors.crashed("the request for a producer id", error)

    async def _fetch(self) -> None:
        if self.refusals:  # each record that is sent calls ensure()
            await self._pause(self.refusals)
        what = "a producer id (idempotence), without which nothing is sent"
        try:
            answer = await until_answered(self._ask, self._before_retry, self._metadata.waits, what)
        except AuthorizationError as error:
            if not self.refusals:
                _log.error(
                    "records fail until there is a producer id: %s", error, extra=log_fields(error)
                )
            self.refusals += 1
            self._accumulator.fail_batches(error, self._clock(), in_flight=False)
        except _REFUSALS as error:
            self._fatal_errors.fail_producer(error)
        else:
            self.refusals = 0
            self._identity.assign(answer.producer_id, answer.producer_epoch)
            self._accumulator.incomplete.reschedule(self._clock())
            self._wakeup.wake_at()  # unbound batches count as ready without a producer id

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
        self._metadata.request_refresh(f"no producer id yet: {error}")
        await self._pause(failures)

    async def _pause(self, failures: int) -> None:
        await asyncio.sleep(retry_pause_s(failures, self._config, self._rng))
