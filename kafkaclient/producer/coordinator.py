"""Calls to the brokers that coordinate transactions and groups, made until they are answered."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Protocol, TypeVar

from kafkaclient.broker_errors import broker_error
from kafkaclient.cluster.backoff import backoff_s
from kafkaclient.errors import AuthorizationError, KafkaError, ProtocolError
from kafkaclient.producer.transactions.states import Outcome, outcome_of
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
        self,
        kind: CoordinatorKind,
        key: str,
        call: Call[T],
        *,
        final: frozenset[int] | None = None,
        over: asyncio.Event | None = None,
    ) -> T:
        """Make the call until it is answered with success or a final error; it takes as long as
        it takes, so the caller sets the limit. ``final``: besides what is fatal only these codes
        are an answer. ``over``: the call is of no use any more once this is set.

        Raises what making it again cannot help (UnsupportedVersionError, AuthorizationError, ...),
        and what the last attempt has failed with when the call is not made again because of
        ``over``.
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
                if outcome in (Outcome.DONE, Outcome.FATAL) or _is_final(code, final):
                    return answer
                last: KafkaError = broker_error(code, f"{call.api_key.name} for {key!r}")
            except KafkaError as error:
                if not _may_pass(error, final):
                    raise
                last, code, outcome = error, None, Outcome.RELOCATE
                self._on_unknown(f"a coordinator did not answer: {error}")
            self.last_error = last
            if outcome is Outcome.RELOCATE:
                self._nodes.pop((kind, key), None)
            failures += 1
            _log.debug("%s for %r is made again: %s", call.api_key.name, key, last)
            first = self._retry_backoff
            if code in _ENDING_CODES:
                first = min(first, _SHORT_BACKOFF)
            pause = backoff_s(failures, first, self._retry_backoff_max, self._rng)
            if over is None:
                await asyncio.sleep(pause)
            elif await _set_within(over, pause):
                raise last

    async def _find(self, kind: CoordinatorKind, key: str) -> int:
        call = FindCoordinatorCall(kind, key)
        found = await self._router.call(call, timeout_s=self._patience)
        if found.error_code:
            what = f"looking for the coordinator of {kind.name.lower()} {key!r}"
            raise broker_error(found.error_code, what, found.error_message)
        self._nodes[kind, key] = found.node_id
        return found.node_id


async def _set_within(event: asyncio.Event, seconds: float) -> bool:
    """Whether the event is set; waits for it up to ``seconds``."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


def _is_final(code: int, final: frozenset[int] | None) -> bool:
    if final is not None:
        return code in final
    return outcome_of(code) not in (Outcome.RETRY, Outcome.RELOCATE)


def _may_pass(error: KafkaError, final: frozenset[int] | None) -> bool:
    """Whether a call that could not be made may work when it is made again."""
    if error.code is None:
        return error.retriable or isinstance(error, ProtocolError)
    if isinstance(error, AuthorizationError) or outcome_of(error.code) is Outcome.FATAL:
        return False
    # Looking for the coordinator has failed: what is final is an answer to the call itself.
    return final is not None or not _is_final(error.code, None)
