"""Calls to the brokers that coordinate transactions and groups, made until they are answered."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol, TypeVar

from kafkaclient.cluster.backoff import backoff_s
from kafkaclient.errors import AuthorizationError, KafkaError, ProtocolError, broker_error
from kafkaclient.producer.transaction_state import Outcome, outcome_of
from kafkaclient.wire.transactions import CoordinatorKind, FindCoordinatorCall

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from kafkaclient.cluster.router import Router
    from kafkaclient.wire.api import Call

__all__ = ["Coordinators"]

_log = logging.getLogger(__name__)

_PATIENCE = 3.0
"""How long a coordinator may take before the call is made anew, perhaps to another broker, in
seconds. Every call here may be repeated; waiting for request.timeout.ms would wait for brokers
that have long been replaced."""

_SHORT_BACKOFF = 0.02
"""The first pause while the last transaction is still being ended (Java: 20 ms)."""

_ENDING_CODES = frozenset({51, 88})  # CONCURRENT_TRANSACTIONS, UNSTABLE_OFFSET_COMMIT


class _Answer(Protocol):
    @property
    def error_code(self) -> int: ...


T = TypeVar("T", bound=_Answer)


class Coordinators:
    """Knows who coordinates what, and finds out again when that changes. Times in seconds.

    ``on_unknown(reason)`` asks for newer metadata: a coordinator may be a broker not known yet.
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
        """What the call under way, or the last one, met last."""
        self._router = router
        self._retry_backoff = retry_backoff
        self._retry_backoff_max = retry_backoff_max
        self._patience = min(request_timeout, _PATIENCE)
        self._rng = rng
        self._on_unknown = on_unknown
        self._nodes: dict[tuple[CoordinatorKind, str], int] = {}

    async def call(
        self, kind: CoordinatorKind, key: str, call: Call[T], *, insist: bool = False
    ) -> T:
        """Make the call until it is answered with success or a final error; it takes as long as
        it takes, so the caller sets the limit. ``insist``: only what is fatal is final.

        Raises what making it again cannot help (UnsupportedVersionError, AuthorizationError, ...).
        """
        failures = 0
        self.last_error = None
        while True:
            try:
                node = self._nodes.get((kind, key))
                if node is None:
                    node = await self._find(kind, key)
                answer = await self._router.call(call, node, timeout_s=self._patience)
                code = answer.error_code
                outcome = outcome_of(code)
                if outcome in (Outcome.DONE, Outcome.FATAL):
                    return answer
                if outcome is Outcome.ABORTABLE and not insist:
                    return answer
                self.last_error = broker_error(code, f"{call.api_key.name} for {key!r}")
            except KafkaError as error:
                if not (_may_pass(error) or (insist and _is_the_brokers_own(error))):
                    raise
                self.last_error, code, outcome = error, None, Outcome.RELOCATE
                self._on_unknown(f"a coordinator did not answer: {error}")
            if outcome is Outcome.RELOCATE:
                self._nodes.pop((kind, key), None)
            failures += 1
            _log.debug("%s for %r is made again: %s", call.api_key.name, key, self.last_error)
            first = self._retry_backoff
            if code in _ENDING_CODES:
                first = min(first, _SHORT_BACKOFF)
            await asyncio.sleep(backoff_s(failures, first, self._retry_backoff_max, self._rng))

    async def _find(self, kind: CoordinatorKind, key: str) -> int:
        call = FindCoordinatorCall(kind, key)
        found = await self._router.call(call, timeout_s=self._patience)
        if found.error_code:
            what = f"looking for the coordinator of {kind.name.lower()} {key!r}"
            raise broker_error(found.error_code, what, found.error_message)
        self._nodes[kind, key] = found.node_id
        return found.node_id


def _may_pass(error: KafkaError) -> bool:
    """Whether a call may work when it is made again."""
    return error.retriable or isinstance(error, ProtocolError)


def _is_the_brokers_own(error: KafkaError) -> bool:
    """Whether a broker has answered with an error that is not about who may do this."""
    if error.code is None or isinstance(error, AuthorizationError):
        return False
    return outcome_of(error.code) is not Outcome.FATAL
