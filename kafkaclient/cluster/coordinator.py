"""Calls to the coordinators of transactions and groups, repeated until a coordinator answers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from enum import Enum
from typing import TYPE_CHECKING, Protocol, TypeVar

from kafkaclient.broker_errors import BROKER_ERRORS, broker_error
from kafkaclient.cluster.backoff import backoff_s
from kafkaclient.cluster.retry import until_answered
from kafkaclient.errors import AuthorizationError, KafkaError, ProtocolError
from kafkaclient.wire.transactions import CoordinatorKind, FindCoordinatorCall

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random

    from kafkaclient.cluster.router import Router
    from kafkaclient.wire.api import Call

__all__ = ["Coordinators", "Outcome", "outcome_of"]

_log = logging.getLogger(__name__)

_PATIENCE = 3.0
"""Seconds that a coordinator has to answer before the call is repeated, perhaps at another broker.
Every call here may be repeated. A wait of request.timeout.ms would be a wait for brokers that have
long been replaced."""

_SHORT_BACKOFF = 0.02
"""Seconds of the first pause while the last transaction is still being ended (Java: 20 ms)."""

_ENDING_CODES = frozenset({51, 88})  # CONCURRENT_TRANSACTIONS, UNSTABLE_OFFSET_COMMIT


class Outcome(Enum):
    """What follows from a coordinator's error code."""

    DONE = "the call succeeded"
    RETRY = "repeat the call after a pause"
    RELOCATE = "find the coordinator again, and repeat the call there"
    ABORTABLE = "the transaction cannot be committed, the producer can go on"
    FATAL = "the producer may not go on"


_OUTCOMES: Mapping[int, Outcome] = {
    -1: Outcome.RETRY,  # UNKNOWN_SERVER_ERROR: of a coordinator that starts or ends
    0: Outcome.DONE,
    7: Outcome.RELOCATE,  # REQUEST_TIMED_OUT
    15: Outcome.RELOCATE,  # COORDINATOR_NOT_AVAILABLE
    16: Outcome.RELOCATE,  # NOT_COORDINATOR
    31: Outcome.FATAL,  # CLUSTER_AUTHORIZATION_FAILED
    # The coordinator does not tell an old epoch from a newer instance (KIP-588): fenced is fenced.
    47: Outcome.FATAL,  # INVALID_PRODUCER_EPOCH
    50: Outcome.FATAL,  # INVALID_TRANSACTION_TIMEOUT
    53: Outcome.FATAL,  # TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    90: Outcome.FATAL,  # PRODUCER_FENCED
}


def outcome_of(code: int) -> Outcome:
    """The meaning of ``code`` in a coordinator's answer.

    Java makes unknown errors fatal. Here only errors about who may write are fatal: an abort that
    requests the next epoch finds out about all others.
    """
    known = _OUTCOMES.get(code)
    if known is not None:
        return known
    _, retriable, _, _ = BROKER_ERRORS.get(code, ("", False, None, ""))
    return Outcome.RETRY if retriable else Outcome.ABORTABLE


class _Answer(Protocol):
    @property
    def error_code(self) -> int: ...


T = TypeVar("T", bound=_Answer)


class Coordinators:
    """Calls coordinators, and finds a coordinator again when it changes. Times are in seconds.

    ``on_unknown(reason)`` requests newer metadata: a coordinator may be a broker not known yet.
    """

    def __init__(
        self,
        router: Router,
        *,
        retry_backoff: float,
        retry_backoff_max: float,
        request_timeout: float,
        rng: Random,
        on_unknown: Callable[[str], None],
    ) -> None:
        self.last_error: KafkaError | None = None
        """The last error of the present call, or of the last one."""
        self._router = router
        self._retry_backoff = retry_backoff
        self._retry_backoff_max = retry_backoff_max
        self._patience = min(request_timeout, _PATIENCE)
        self._rng = rng
        self._on_unknown = on_unknown
        self._nodes: dict[tuple[CoordinatorKind, str], int] = {}

    async def call(
        self,
        kind: CoordinatorKind,
        key: str,
        call: Call[T],
        *,
        final: frozenset[int] | None = None,
        over: asyncio.Event | None = None,
    ) -> T:
        """The first answer that is a success or a final error. There is no time limit: the caller
        sets one. ``final``: besides fatal codes only these codes are final (None: all
        codes that are not to be retried). ``over``: the call is
        not repeated once this event is set.

        Raises an error that a repeated call cannot help (UnsupportedVersionError,
        AuthorizationError, ...), and the error of the last attempt once ``over`` is set.
        """
        self.last_error = None
        refused: int | None = None  # the code of an answer that is not final

        async def attempt() -> T:
            nonlocal refused
            refused = None
            node = await self._node_of(kind, key)
            answer = await self._router.call(call, node, timeout_s=self._patience)
            code = answer.error_code
            if outcome_of(code) in (Outcome.DONE, Outcome.FATAL) or _is_final(code, final):
                return answer
            refused = code
            raise broker_error(code, f"{call.api_key.name} for {key!r}")

        async def before_retry(error: KafkaError, failures: int) -> None:
            if refused is None:
                if not _is_worth_repeating(error, final):
                    raise error
                self._on_unknown(f"a coordinator did not answer: {error}")
            self.last_error = error
            if refused is None or outcome_of(refused) is Outcome.RELOCATE:
                self._nodes.pop((kind, key), None)
            _log.debug("%s for %r is repeated: %s", call.api_key.name, key, error)
            first = self._retry_backoff
            if refused in _ENDING_CODES:
                first = min(first, _SHORT_BACKOFF)
            pause = backoff_s(failures, first, self._retry_backoff_max, self._rng)
            if await _set_within(over, pause):
                raise error

        return await until_answered(attempt, before_retry)

    async def _node_of(self, kind: CoordinatorKind, key: str) -> int:
        known = self._nodes.get((kind, key))
        if known is not None:
            return known
        call = FindCoordinatorCall(kind, key)
        found = await self._router.call(call, timeout_s=self._patience)
        if found.error_code:
            what = f"looking for the coordinator of {kind.name.lower()} {key!r}"
            raise broker_error(found.error_code, what, found.error_message)
        self._nodes[kind, key] = found.node_id
        return found.node_id


async def _set_within(event: asyncio.Event | None, seconds: float) -> bool:
    """Whether the event is set; waits up to ``seconds`` for it."""
    if event is None:
        await asyncio.sleep(seconds)
        return False
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


def _is_final(code: int, final: frozenset[int] | None) -> bool:
    if final is not None:
        return code in final
    return outcome_of(code) not in (Outcome.RETRY, Outcome.RELOCATE)


def _is_worth_repeating(error: KafkaError, final: frozenset[int] | None) -> bool:
    """Whether a call that failed without an answer may succeed when it is repeated."""
    if error.code is None:
        return error.retriable or isinstance(error, ProtocolError)
    if isinstance(error, AuthorizationError) or outcome_of(error.code) is Outcome.FATAL:
        return False
    # FindCoordinator has failed: ``final`` is about answers to the call itself.
    return final is not None or not _is_final(error.code, None)
