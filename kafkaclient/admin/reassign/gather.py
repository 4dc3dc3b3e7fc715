"""Runs many requests concurrently and collects their results and errors."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from kafkaclient.errors import KafkaError, RequestTimedOutError

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

__all__ = ["gather_outcomes"]

K = TypeVar("K")
T = TypeVar("T")

_TIMEOUT_S = 10.0  # seconds for one request; a broker that is down is detected by this timeout


async def gather_outcomes(
    jobs: Mapping[K, Coroutine[None, None, T]], *, timeout_s: float | None = _TIMEOUT_S
) -> tuple[dict[K, T], dict[K, KafkaError]]:
    """The results of the jobs that succeeded, and the errors of the jobs that failed."""

    async def timed(job: Coroutine[None, None, T]) -> T:
        try:
            async with asyncio.timeout(timeout_s):
                return await job
        except TimeoutError as error:
            if isinstance(error, KafkaError):
                raise
            raise RequestTimedOutError(f"no answer within {timeout_s:g} s") from error

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
