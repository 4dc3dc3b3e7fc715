"""Calls to the coordinators of transactions and groups, repeated until a coordinator answers."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from kafkaclient.broker_errors import BROKER_ERRORS, ErrorCode, broker_error, denied
from kafkaclient.cluster.backoff import exponential_s, set_within, until_answered
from kafkaclient.errors import AuthenticationError, AuthorizationError, KafkaError, ProtocolError
from kafkaclient.log_fields import log_fields
from kafkaclient.wire.transactions import CoordinatorKind, FindCoordinatorCall

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping
    from random import Random

    from kafkaclient.cluster.link import Purpose
    from kafkaclient.cluster.router import Router
    from kafkaclient.cluster.waits import Waits
    from kafkaclient.config import ClientConfig
    from kafkaclient.wire.api import Call

# What clients need of what they ask the coordinator for, as in ACLs.
_GRANTS = {CoordinatorKind.GROUP: "Read", CoordinatorKind.TRANSACTION: "Write"}

_log = logging.getLogger(__name__)

_MAX_TIMEOUT_S = 3.0
"""How long a coordinator may take to answer before the call is repeated, maybe at another broker.
Every call may be repeated. With request.timeout.ms the client would wait long for a broker that is
no longer the coordinator."""


_ENDING_BACKOFF_S = 0.02  # first pause while the previous transaction is being ended (as in Java)
_ENDING_CODES = frozenset({ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.UNSTABLE_OFFSET_COMMIT})


class CallOutcome(Enum):
    """What follows from a coordinator's error code."""

    DONE = "the call succeeded"
    RETRY = "repeat the call after a pause"
    RELOCATE = "find the coordinator again, and repeat the call there"
    ABORTABLE = "the transaction must be aborted, the producer can continue"
    FATAL = "the producer cannot continue"


# Fatal codes are about the right to write transactions. Other codes come from coordinators of
# groups as well.
_OUTCOMES: Mapping[int, CallOutcome] = {
    -1: CallOutcome.RETRY,  # UNKNOWN_SERVER_ERROR: the coordinator is starting or stopping
    0: CallOutcome.DONE,
    7: CallOutcome.RELOCATE,  # REQUEST_TIMED_OUT
    15: CallOutcome.RELOCATE,  # COORDINATOR_NOT_AVAILABLE
    16: CallOutcome.RELOCATE,  # NOT_COORDINATOR
    31: CallOutcome.FATAL,  # CLUSTER_AUTHORIZATION_FAILED
    # The coordinator sends the same code for an old epoch and for a newer instance (KIP-588).
    47: CallOutcome.FATAL,  # INVALID_PRODUCER_EPOCH
    # INVALID_PRODUCER_ID_MAPPING: the coordinator has forgotten the transactional id. A producer
    # that was only idle gets it, and one that was fenced: its next epoch would fence the other.
    49: CallOutcome.FATAL,
    50: CallOutcome.FATAL,  # INVALID_TRANSACTION_TIMEOUT
    53: CallOutcome.FATAL,  # TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    90: CallOutcome.FATAL,  # PRODUCER_FENCED
}


def outcome_of(code: int) -> CallOutcome:
    """What follows from ``code`` in a coordinator's answer.

    In Java unknown errors are fatal. Here only errors about the right to write are fatal. After
    all others an abort that requests the next epoch shows whether the producer can continue.
    """
    known = _OUTCOMES.get(code)
    if known is not None:
        return known
    _, retriable, _, _ = BROKER_ERRORS.get(code, ("", False, None, ""))
    return CallOutcome.RETRY if retriable else CallOutcome.ABORTABLE


class CodedAnswer(Protocol):
    """An answer with an error code for all of it."""

    @property
    def error_code(self) -> int: ...


T = TypeVar("T", bound=CodedAnswer)


class Coordinators:
    """Calls coordinators, and finds a coordinator again when it changes.

    ``on_unknown(reason)`` requests newer metadata: a coordinator may be a broker not known yet.
    """

    def __init__(
        self,
        router: Router,
        *,
        config: ClientConfig,
        rng: Random,
        waits: Waits,
        on_unknown: Callable[[str], None],
    ) -> None:
        self.last_error: KafkaError | None = None
        """The last error of the current or the last call."""
        self._router = router
        self._first_pause_s = config.retry_backoff_ms / 1000
        self._max_pause_s = config.retry_backoff_max_ms / 1000
        self._timeout_s = min(config.request_timeout_ms / 1000, _MAX_TIMEOUT_S)
        self._rng = rng
        self._waits = waits
        self.on_unknown = on_unknown
        self._nodes: dict[tuple[CoordinatorKind, str], int] = {}

    async def call(
        self,
        kind: CoordinatorKind,
        key: str,
        call: Call[T],
        *,
        final: frozenset[int] | None = None,
        over: asyncio.Event | None = None,
        timeout_s: float | None = None,
        purpose: Purpose = "control",
    ) -> T:
        """The first answer that is a success or a final error. The caller sets a time limit.
        ``final``: besides fatal codes, only these codes are final (None: all codes for which a
        retry does not help). ``over``: the call is not repeated once this event is set.
        ``timeout_s``: how long the coordinator may take to answer, 3 s by default. ``purpose``: as
        for :meth:`.Router.call`, for calls that are answered late.

        Raises an error that a repeated call cannot help (UnsupportedVersionError,
        AuthorizationError, ...), and the error of the last attempt once ``over`` is set.
        """
        self.last_error = None
        refused: int | None = None  # the code of an answer that is not final

        async def attempt() -> T:
            nonlocal refused
            refused = None
            node = await self._node_of(kind, key)
            calling = self._router.call(
                call, node, timeout_s=timeout_s or self._timeout_s, purpose=purpose
            )
            answer = await (self._late(kind, key, node, calling, purpose) if timeout_s else calling)
            code = answer.error_code
            if outcome_of(code) in (CallOutcome.DONE, CallOutcome.FATAL) or _is_final(code, final):
                return answer
            refused = code
            raise broker_error(code, f"{call.api_key.name} for {key!r}")

        async def before_retry(error: KafkaError, failures: int) -> None:
            if refused is None:
                if not _is_worth_repeating(error, final):
                    raise error
                self.on_unknown(f"a coordinator did not answer: {error}")
            self.last_error = error
            if refused is None or outcome_of(refused) is CallOutcome.RELOCATE:
                self._nodes.pop((kind, key), None)
            _log.debug(
                "%s for %r is repeated: %s",
                call.api_key.name,
                key,
                error,
                extra=log_fields(error),
            )
            first_s = self._first_pause_s
            if refused in _ENDING_CODES:
                first_s = min(first_s, _ENDING_BACKOFF_S)
            pause = exponential_s(failures, first_s, self._max_pause_s, self._rng)
            if over is None:
                await asyncio.sleep(pause)
            elif await set_within(over, pause):
                raise error

        what = f"the coordinator of {kind.name.lower()} {key!r}"
        silence = "no answer yet" if timeout_s is None else None
        return await until_answered(attempt, before_retry, self._waits, what, silence=silence)

    async def pause(self, failures: int) -> None:
        """Wait before a call is repeated: ``retry.backoff.ms`` to ``retry.backoff.max.ms``."""
        pause_s = exponential_s(failures, self._first_pause_s, self._max_pause_s, self._rng)
        await asyncio.sleep(pause_s)

    async def _late(
        self,
        kind: CoordinatorKind,
        key: str,
        node: int,
        calling: Coroutine[Any, Any, T],
        purpose: Purpose,
    ) -> T:
        """The answer to a call for which the coordinator takes its time. A broker that is paused
        or cut off would take all of it: raises BrokerError once another one is the coordinator."""
        answer = asyncio.ensure_future(calling)
        try:
            while not (await asyncio.wait({answer}, timeout=self._timeout_s))[0]:
                with suppress(KafkaError):  # the next check may succeed
                    if await self._find(kind, key) != node:
                        self._router.release(purpose)
                        what = f"waiting for broker {node}, which coordinated {key!r}"
                        raise broker_error(ErrorCode.NOT_COORDINATOR, what)
            return answer.result()
        finally:
            answer.cancel()

    async def _node_of(self, kind: CoordinatorKind, key: str) -> int:
        known = self._nodes.get((kind, key))
        if known is None:
            known = self._nodes[kind, key] = await self._find(kind, key)
        return known

    async def _find(self, kind: CoordinatorKind, key: str) -> int:
        call = FindCoordinatorCall(kind, key)
        found = await self._router.call(call, timeout_s=self._timeout_s)
        if found.error_code:
            what = f"looking for the coordinator of {kind.name.lower()} {key!r}"
            advice = denied(found.error_code, "Describe", key, grant=_GRANTS[kind])
            raise broker_error(found.error_code, what, found.error_message, advice=advice)
        return found.node_id


def _is_final(code: int, final: frozenset[int] | None) -> bool:
    if final is not None:
        return code in final
    return outcome_of(code) not in (CallOutcome.RETRY, CallOutcome.RELOCATE)


def _is_worth_repeating(error: KafkaError, final: frozenset[int] | None) -> bool:
    """Whether a call that failed without an answer may succeed when it is repeated."""
    if error.code is None or isinstance(error, AuthenticationError):
        return error.retriable or isinstance(error, ProtocolError)
    if isinstance(error, AuthorizationError) or outcome_of(error.code) is CallOutcome.FATAL:
        return False
    # FindCoordinator has failed: ``final`` is about answers to the call itself.
    return final is not None or not _is_final(error.code, None)
