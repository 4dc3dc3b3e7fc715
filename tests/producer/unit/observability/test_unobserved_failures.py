"""Failures nobody looked at: none is lost, none floods the log, and the hook gets its own turn."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

from kafkaclient.errors import BrokerConnectionError, KafkaError
from kafkaclient.producer.batches.batch_result import BatchResult
from kafkaclient.producer.observability.reports import UnobservedFailures, UnseenFailure
from kafkaclient.testing.clock import virtual_time

if TYPE_CHECKING:
    import pytest

LOST = BrokerConnectionError("lost")


def unseen(on_error: Any = None) -> UnobservedFailures:
    loop = asyncio.get_running_loop()
    return UnobservedFailures(loop.time, on_error, loop, "shop")


def counts(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    messages = [r.getMessage().split() for r in caplog.records]
    return [(int(words[0]), words[4]) for words in messages]


@virtual_time
async def test_what_is_held_back_is_told_within_ten_seconds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failures = unseen()
    for _ in range(3):
        failures.report(BatchResult("a"), LOST, 2)
        await asyncio.sleep(1)
    assert counts(caplog) == [(2, "a")]
    failures.report(BatchResult("b"), LOST, 1)
    await asyncio.sleep(8)
    assert counts(caplog) == [(2, "a"), (1, "b"), (4, "a")]
    failures.report(BatchResult("a"), LOST, 8)  # in the second line's window
    await asyncio.sleep(9)
    assert counts(caplog)[3:] == [(8, "a")]
    await asyncio.sleep(20)
    failures.report(BatchResult("a"), LOST, 16)
    await asyncio.sleep(0.1)
    assert counts(caplog)[4:] == [(16, "a")]
    failures.close()


@virtual_time
async def test_what_is_held_back_is_told_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    failures = unseen()
    for _ in range(3):
        failures.report(BatchResult("a"), LOST, 2)
    failures.report(BatchResult("a"), KafkaError("another kind"), 1)
    await asyncio.sleep(0.1)
    failures.close()
    failures.close()
    assert counts(caplog) == [(2, "a"), (1, "a"), (4, "a")]


@virtual_time
async def test_the_hook_is_called_in_a_turn_of_its_own() -> None:
    told: list[UnseenFailure] = []
    failures = unseen(told.append)
    failures.report(BatchResult("a"), LOST, 2)
    assert told == []
    await asyncio.sleep(0)
    assert told == [UnseenFailure("a", -1, 2, LOST)]


async def test_a_delivery_that_another_thread_collects() -> None:
    threads: list[int] = []
    failures = unseen(lambda _: threads.append(threading.get_ident()))
    thread = threading.Thread(target=failures.report, args=(BatchResult("a"), LOST, 1))
    thread.start()
    thread.join()
    await asyncio.sleep(0.01)
    assert threads == [threading.get_ident()]


def test_a_delivery_that_outlives_its_loop() -> None:
    told: list[UnseenFailure] = []

    async def main() -> UnobservedFailures:
        return unseen(told.append)

    failures = asyncio.run(main())
    failures.report(BatchResult("a"), LOST, 1)
    assert len(told) == 1
