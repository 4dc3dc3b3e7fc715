"""Makes a change in many places, none of them held up by the others."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from kafkaclient.errors import KafkaError, RequestTimedOutError

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

__all__ = ["each_of"]

K = TypeVar("K")
T = TypeVar("T")

_PATIENCE_S = 10.0
"""For one broker. One that is down is found out by this, or as soon as metadata leaves it out."""


async def each_of(
    jobs: Mapping[K, Coroutine[None, None, T]], *, patience_s: float | None = _PATIENCE_S
) -> tuple[dict[K, T], dict[K, KafkaError]]:
    """Each job's outcome or error, none held up by the others."""

    async def timed(job: Coroutine[None, None, T]) -> T:
        try:
            async with asyncio.timeout(patience_s):
                return await job
        except TimeoutError as error:
            if isinstance(error, KafkaError):
                raise
            raise RequestTimedOutError(f"no answer within {patience_s:g} s") from error

    outcomes = await asyncio.gather(*map(timed, jobs.values()), return_exceptions=True)
    done: dict[K, T] = {}
    failed: dict[K, KafkaError] = {}
    for key, outcome in zip(jobs, outcomes, strict=True):
        if isinstance(outcome, KafkaError):
            failed[key] = outcome
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            done[key] = outcome
    return done, failed
