"""delivery.timeout.ms: every batch has an outcome in time, wherever it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.errors import BrokerConnectionError, DeliveryTimeoutError
from kafkaclient.producer.batches.delivery_errors import delivery_timeout

if TYPE_CHECKING:
    from tests.producer.support import Bench

LOST = BrokerConnectionError("connection lost")


def expire(b: Any, now: float) -> int:
    """How many batches expired at ``now``."""
    before = len(b.incomplete)
    while (batch := b.incomplete.next_expired(now)) is not None:
        error = delivery_timeout(batch, now - batch.created, 5.0, None)
        b.incomplete.fail_without_answer(batch, error, now)
    return before - len(b.incomplete)


@pytest.mark.parametrize("muted", [False, True])
@pytest.mark.parametrize("timeout", [3.2, 2147483.647])
def test_expires_at_exactly_the_delivery_timeout(
    bench: type[Bench], muted: bool, timeout: float
) -> None:
    b = bench(delivery_timeout=timeout, one_in_flight=True)
    if muted:
        b.put_batches(0, 1)
        b.drain()
    delivery = b.put(0, now=1.0)
    if muted:
        b.incomplete.complete(b.queue(0).unacked[0], 0, -1, 1.0)
    assert b.incomplete.next_expiry() == 1.0 + timeout
    assert expire(b, 1.0 + timeout - 0.001) == 0
    assert not delivery.done()
    assert expire(b, 1.0 + timeout) == 1
    assert isinstance(delivery.exception(), DeliveryTimeoutError)
    assert b.used == 0
    assert b.incomplete.next_expiry() is None


def test_the_age_counts_from_creation_across_retries(bench: type[Bench]) -> None:
    """testExpiredBatchesRetry: re-queued, then 2200 ms later: sent if it may, else expired."""
    for muted in (False, True):
        b = bench(delivery_timeout=3.2, linger=0.0, one_in_flight=True)
        first, second = b.put_batches(0, 2, now=0.0)
        assert b.drain(now=1.0) == [first]
        if not muted:
            b.incomplete.retry(first, LOST, 1.1, 1.0)
            assert expire(b, 3.1) == 0
            assert b.drain(now=3.1) == [first]
        assert expire(b, 3.2) == 2
        assert second.result.error is not None


def test_only_the_old_ones_expire(bench: type[Bench]) -> None:
    b = bench(delivery_timeout=5.0)
    old = b.put_batches(0, 2, now=0.0)
    b.put_batches(1, 1, now=1.0)
    assert expire(b, 5.0) == 2
    assert all(batch.result.done for batch in old)
    assert b.used == b.queue(1).batches[0].charged
    assert list(b.queue(0).batches) == []


@pytest.mark.parametrize("answer", ["success", "lost", "refused"])
def test_expired_on_the_wire_keeps_its_memory_until_the_answer(
    bench: type[Bench], answer: str
) -> None:
    """KAFKA-19012: the transport may still read the buffer."""
    b = bench(delivery_timeout=5.0)
    delivery = b.put(0)
    (batch,) = b.drain()
    assert expire(b, 5.0) == 1
    error = delivery.exception()
    assert error.maybe_written
    assert "was on its way to broker 0" in str(error)
    assert b.used == batch.charged > 0
    assert b.queue(0).in_flight == 1
    if answer == "success":
        b.incomplete.complete(batch, 7, -1, 6.0)
    elif answer == "lost":
        b.incomplete.retry(batch, LOST, 6.1, 6.0)
    else:
        b.incomplete.fail(batch, LOST, 6.0)
    assert b.used == 0
    assert (b.queue(0).in_flight, len(b.queue(0).unacked), len(b.queue(0).batches)) == (0, 0, 0)
    assert delivery.exception() is error, "a reported failure is final"


def lingering(b: Any) -> None:
    b.put(0)


def backing_off(b: Any) -> None:
    b.put_batches(0, 1)
    (batch,) = b.drain()
    b.incomplete.retry(batch, LOST, 100.0, 0.0)


def leaderless(b: Any) -> None:
    b.put_batches(0, 1)
    b.lead(0, -1)


def no_slot(b: Any) -> None:
    b.put_batches(0, 1)


def blocked(b: Any) -> None:
    b.identity.enabled = True
    b.identity.producer_id = -1
    b.put_batches(0, 1)


@pytest.mark.parametrize(
    ("arrange", "words"),
    [
        (lingering, "waited for its turn"),
        (backing_off, "waited for its retry; last error: connection lost"),
        (leaderless, "waited for a leader of their partition"),
        (no_slot, "waited for broker 0 to take requests"),
        (
            blocked,
            "waited for earlier batches of its partition, for a producer id, or to be added to the "
            "transaction",
        ),
    ],
)
def test_the_error_says_where_the_batch_was(bench: type[Bench], arrange: Any, words: str) -> None:
    b = bench(delivery_timeout=5.0, linger=50.0)
    arrange(b)
    (batch,) = b.incomplete
    assert expire(b, 5.0) == 1
    error = batch.result.error
    assert isinstance(error, DeliveryTimeoutError)
    assert words in str(error)
    assert "1 record to test-0" in str(error)
    assert "delivery.timeout.ms=5000" in str(error)
    assert error.maybe_written is False
    assert "It has not been written" in str(error)
    assert b.used == 0


def test_a_lost_attempt_leaves_a_doubt_in_the_error(bench: type[Bench]) -> None:
    b = bench(delivery_timeout=5.0)
    b.put(0)
    (batch,) = b.drain()
    batch.mark_uncertain()
    b.incomplete.retry(batch, LOST, 100.0, 0.0)
    expire(b, 5.0)
    error = batch.result.error
    assert isinstance(error, DeliveryTimeoutError)
    assert error.maybe_written
    assert error.__cause__ is LOST
