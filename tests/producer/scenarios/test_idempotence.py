"""Sequences, epochs and refusals: repaired where possible, confined where not (2.4).

Ids such as ``S1`` are rows of docs/project/hard-situations.md.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.errors import (
    AuthorizationError,
    BrokerError,
    DeliveryTimeoutError,
    NotEnoughReplicasError,
    ProducerFencedError,
    RecordTooLargeError,
    UnsupportedVersionError,
)
from kafkaclient.producer.batches.idempotence import MAX_EPOCH
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import CLOSE, CLOSE_ANSWER, DROP_ANSWER, ErrorCode
from kafkaclient.testing.inspect import inspect
from kafkaclient.wire.api import ApiKey
from tests.producer.support import now, one_topic

if TYPE_CHECKING:
    from tests.producer.support import Outcomes, StartProducer

OUT_OF_ORDER, UNKNOWN_PRODUCER_ID, INVALID_RECORD, PRODUCER_FENCED = 45, 59, 87, 90


# --- S1: repair -------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [OUT_OF_ORDER, UNKNOWN_PRODUCER_ID, 47])
@virtual_time
async def test_a_sequence_error_is_repaired_with_the_next_epoch(
    code: int, producing: StartProducer
) -> None:
    """S1: KIP-360: the batch that was refused is sent again under epoch+1 from sequence 0."""
    fake = one_topic(1)
    async with producing(fake, linger_ms=0) as producer:
        await producer.send_and_wait("t", b"1")
        fake.fail_produce("t", 0, code)
        await producer.send_and_wait("t", b"2")
        await producer.send_and_wait("t", b"3")
    log = fake.log("t", 0)
    assert [(r.value, r.producer_epoch, r.sequence) for r in log] == [
        (b"1", 0, 0),
        (b"2", 1, 0),
        (b"3", 1, 1),
    ]
    assert len({record.producer_id for record in log}) == 1


@virtual_time
async def test_other_partitions_follow_to_the_new_epoch(producing: StartProducer) -> None:
    """S1: each when nothing of it is on the wire; no gap and no duplicate anywhere."""
    fake = one_topic(3)
    fake.round_trip_s = 0.01
    async with producing(fake, linger_ms=1) as producer:
        deliveries = []
        for n in range(300):
            if n == 100:
                fake.fail_produce("t", 1, OUT_OF_ORDER)
            deliveries.append(await producer.send("t", b"%d" % n, partition=n % 3))
            await asyncio.sleep(0.001)
        await asyncio.gather(*deliveries)
    for partition in range(3):
        log = fake.log("t", partition)
        assert [int(record.value or b"") for record in log] == list(range(partition, 300, 3))
        assert log[0].producer_epoch == 0
        assert log[-1].producer_epoch == 1


@virtual_time
async def test_a_log_that_lost_its_producers_takes_us_back(producing: StartProducer) -> None:
    """S1: retention dropped what the broker knew of us; nothing has to be repaired."""
    fake = one_topic(1)
    async with producing(fake, linger_ms=0) as producer:
        await producer.send_and_wait("t", b"1")
        fake.forget_producers("t", 0)
        await producer.send_and_wait("t", b"2")
        await producer.send_and_wait("t", b"3")
    assert [r.value for r in fake.log("t", 0)] == [b"1", b"2", b"3"]


@virtual_time
async def test_used_up_epochs_bring_a_new_producer_id(producing: StartProducer) -> None:
    """S1: after the last epoch a broker is asked for another id, and sequences begin at 0."""
    fake = one_topic(2)
    async with producing(fake, linger_ms=0) as producer:
        await producer.send_and_wait("t", b"1", partition=0)
        identity = inspect(producer).accumulator.identity
        identity.epoch = MAX_EPOCH
        await producer.send_and_wait("t", b"2", partition=0)
        fake.fail_produce("t", 0, OUT_OF_ORDER)
        await asyncio.gather(
            producer.send_and_wait("t", b"3", partition=0),
            producer.send_and_wait("t", b"other", partition=1),
        )
        await producer.send_and_wait("t", b"4", partition=0)
    log = fake.log("t", 0)
    assert [(r.value, r.producer_epoch) for r in log] == [
        (b"1", 0),
        (b"2", MAX_EPOCH),
        (b"3", 0),
        (b"4", 0),
    ]
    assert log[2].producer_id != log[1].producer_id
    assert len(fake.requests_of(ApiKey.INIT_PRODUCER_ID)) == 2


@virtual_time
async def test_sequences_wrap_to_nought(producing: StartProducer) -> None:
    """S2: a batch across 2^31-1, and those after it."""
    fake = one_topic(1)
    async with producing(fake, linger_ms=10) as producer:
        await producer.partitions_for("t")
        sequence = inspect(producer).accumulator.topic("t").queue(0).sequence
        await asyncio.sleep(0.1)
        identity = inspect(producer).accumulator.identity
        sequence.producer_id, sequence.epoch = identity.producer_id, identity.epoch
        sequence.next = 2**31 - 3
        for _ in range(3):
            await asyncio.gather(*[producer.send_and_wait("t", b"v") for _ in range(4)])
    top = 2**31
    wrapped = [(top - 3 + n) % top for n in range(12)]
    assert [record.sequence for record in fake.log("t", 0)] == wrapped


@virtual_time
async def test_what_was_written_as_a_whole_is_not_written_in_parts(
    producing: StartProducer, outcomes: Outcomes
) -> None:
    """The answer is lost, then the topic's limit lowered: the halves have the numbers that their
    records had, and a log that has the whole refuses them."""
    fake = one_topic(1)
    answers = iter([CLOSE_ANSWER, int(ErrorCode.MESSAGE_TOO_LARGE)])
    async with producing(fake, linger_ms=5) as producer:
        await producer.send_and_wait("t", b"first", partition=0)
        fake.control(ApiKey.PRODUCE, lambda _: next(answers, None), keep=True)
        deliveries = [producer.send_nowait("t", b"%d" % n, partition=0) for n in range(10)]
        failed = await outcomes(deliveries)
        assert all(isinstance(error, RecordTooLargeError) for error in failed)
        assert all(error.maybe_written for error in failed)
        assert "most likely they were written" in str(failed[0])
        await producer.send_and_wait("t", b"next", partition=0)
    log = [record.value for record in fake.log("t", 0)]
    assert log == [b"first", *(b"%d" % n for n in range(10)), b"next"]


@pytest.mark.parametrize("later", [0, 3])
@virtual_time
async def test_a_lost_request_does_not_keep_a_batch_from_being_split(
    later: int, producing: StartProducer
) -> None:
    """A batch too large for its topic whose first attempt got lost: it cannot have been written,
    and the parts tell."""
    fake = one_topic(1, max_message_bytes=300)
    fake.round_trip_s = 0.01
    async with producing(fake, linger_ms=5) as producer:
        await producer.send_and_wait("t", b"first", partition=0)
        fake.control(ApiKey.PRODUCE, CLOSE)
        deliveries = [producer.send_nowait("t", b"%d" % n * 50, partition=0) for n in range(10)]
        await asyncio.sleep(0.008)
        deliveries += [producer.send_nowait("t", b"later", partition=0) for _ in range(later)]
        assert len(await asyncio.gather(*deliveries)) == 10 + later
    log = [record.value for record in fake.log("t", 0)]
    assert log == [b"first", *(b"%d" % n * 50 for n in range(10)), *[b"later"] * later]


@pytest.mark.parametrize("answer", [CLOSE_ANSWER, DROP_ANSWER, ErrorCode.NOT_ENOUGH_REPLICAS])
@virtual_time
async def test_lost_answers_make_no_duplicates(answer: Any, producing: StartProducer) -> None:
    """S1: five batches are out when an answer is lost; each is in the log once, in order."""
    fake = one_topic(1)
    fake.round_trip_s = 0.02
    async with producing(fake, batch_size=200, linger_ms=0, request_timeout_ms=1000) as producer:
        await producer.send_and_wait("t", b"first")
        answers = iter([None, answer, None, answer, answer])
        fake.control(ApiKey.PRODUCE, lambda _: next(answers, None), keep=True)
        deliveries = [await producer.send("t", b"%0150d" % n) for n in range(40)]
        metadata = await asyncio.gather(*deliveries)
        assert [m.offset for m in metadata] == list(range(1, 41))
    assert [int(r.value or b"") for r in fake.log("t", 0)[1:]] == list(range(40))


@virtual_time
async def test_an_expired_batch_leaves_no_gap(producing: StartProducer, outcomes: Outcomes) -> None:
    """S1: what was never answered is given up; what follows is written, under a new epoch."""
    fake = one_topic(1)
    options = {"request_timeout_ms": 900, "delivery_timeout_ms": 1000, "linger_ms": 0}
    async with producing(fake, **options) as producer:
        await producer.send_and_wait("t", b"1")
        fake.stall_broker(0)
        lost = await producer.send("t", b"lost")
        await asyncio.sleep(0.5)
        later = await producer.send("t", b"later")
        assert isinstance((await outcomes([lost]))[0], DeliveryTimeoutError)
        fake.resume_broker(0)
        results = await outcomes([later])
        await producer.send_and_wait("t", b"after")
        written = [record.value for record in fake.log("t", 0)]
        assert written[0] == b"1"
        assert written[-1] == b"after"
        assert written.count(b"lost") <= 1
        assert (b"later" in written) or isinstance(results[0], DeliveryTimeoutError)


# --- S3: not enough replicas ------------------------------------------------------------------


@virtual_time
async def test_too_few_replicas_for_a_while(producing: StartProducer) -> None:
    """S3: retried until there are enough; written once."""
    fake = one_topic(1, replication_factor=3, min_insync_replicas=2)
    async with producing(fake) as producer:
        fake.set_isr("t", 0, [0])
        delivery = await producer.send("t", b"v")
        await asyncio.sleep(5)
        assert not delivery.done()
        fake.set_isr("t", 0, [0, 1])
        await delivery
        assert now() < 6.2
    assert [record.value for record in fake.log("t", 0)] == [b"v"]


@virtual_time
async def test_too_few_replicas_for_good(producing: StartProducer) -> None:
    """S3: the error states min.insync.replicas, and how long it was tried."""
    fake = one_topic(1, replication_factor=3, min_insync_replicas=2)
    fake.set_isr("t", 0, [0])
    async with producing(fake) as producer:
        delivery = await producer.send("t", b"v")
        with pytest.raises(DeliveryTimeoutError, match=r"min\.isr requirement of 2") as caught:
            await delivery
        assert isinstance(caught.value.__cause__, NotEnoughReplicasError)
        assert "after 120.0" in str(caught.value)
        assert not caught.value.maybe_written


@virtual_time
async def test_written_to_too_few_replicas(producing: StartProducer) -> None:
    """S3: NOT_ENOUGH_REPLICAS_AFTER_APPEND: sent again, the broker knows it already."""
    fake = one_topic(1)
    async with producing(fake) as producer:
        fake.fail_produce("t", 0, 20, append=True)
        metadata = await producer.send_and_wait("t", b"v")
        assert metadata.offset == 0
    assert [record.value for record in fake.log("t", 0)] == [b"v"]


@virtual_time
async def test_retries_are_counted(producing: StartProducer) -> None:
    """S3: retries=2 without idempotence: the third failure is final."""
    fake = one_topic(1)
    async with producing(fake, retries=2, enable_idempotence=False) as producer:
        fake.fail_produce("t", 0, 19, times=3)
        with pytest.raises(NotEnoughReplicasError):
            await producer.send_and_wait("t", b"v")
        assert len(fake.requests_of(ApiKey.PRODUCE)) == 3
        await producer.send_and_wait("t", b"w")


# --- S4: one batch's failure ------------------------------------------------------------------


@virtual_time
async def test_a_refused_batch_touches_no_other(
    producing: StartProducer, outcomes: Outcomes
) -> None:
    """S4: three batches, the middle one refused: the others once, it never."""
    fake = one_topic(1)
    fake.round_trip_s = 0.02
    async with producing(fake, batch_size=0) as producer:
        await producer.send_and_wait("t", b"first")
        answers = iter([None, INVALID_RECORD])
        fake.control(ApiKey.PRODUCE, lambda _: next(answers, None), keep=True)
        deliveries = [await producer.send("t", n * 100) for n in (b"a", b"b", b"c")]
        a, b, c = await outcomes(deliveries)
        assert (a.offset, c.offset) == (1, 2)
        assert isinstance(b, BrokerError)
        assert b.code == INVALID_RECORD
        await producer.send_and_wait("t", b"last")
    assert [(r.value or b"")[:1] for r in fake.log("t", 0)[1:]] == [b"a", b"c", b"l"]


@virtual_time
async def test_record_errors_name_the_culprit(producing: StartProducer, outcomes: Outcomes) -> None:
    """S4: KIP-467: the record that the broker names has the broker's message; those that shared
    its batch by chance are sent again without it, before all that follow."""
    fake = one_topic(1)
    async with producing(fake, linger_ms=10) as producer:
        fake.fail_produce("t", 0, INVALID_RECORD, record_errors=[(3, "no schema")], message="bad")
        deliveries = [await producer.send("t", b"%d" % n) for n in range(5)]
        deliveries.append(await producer.send("t", b"after"))
        *before, guilty, four, after = await outcomes(deliveries)
        assert guilty.code == INVALID_RECORD
        assert "no schema" in str(guilty)
        assert [m.offset for m in (*before, four, after)] == [0, 1, 2, 3, 4]
    assert [r.value for r in fake.log("t", 0)] == [b"0", b"1", b"2", b"4", b"after"]


@virtual_time
async def test_fencing_is_fatal(producing: StartProducer, outcomes: Outcomes) -> None:
    """S1: everything pending fails with the cause, and so does every further send."""
    fake = one_topic(2)
    async with producing(fake, linger_ms=0) as producer:
        await producer.send_and_wait("t", b"first", partition=0)
        fake.fail_produce("t", 0, PRODUCER_FENCED)
        doomed = [
            await producer.send("t", b"v", partition=0),
            producer.send_nowait("unknown", b"v"),
        ]
        assert [type(error) for error in await outcomes(doomed)] == [ProducerFencedError] * 2
        with pytest.raises(ProducerFencedError):
            await producer.send("t", b"v", partition=1)
        assert await producer.stop() == 0


@pytest.mark.parametrize(("code", "refused"), [(14, False), (31, True), (-1, False), (53, True)])
@virtual_time
async def test_asking_for_a_producer_id(code: int, refused: bool, producing: StartProducer) -> None:
    """C6: transient errors use the whole delivery budget; a clear refusal is told at once."""
    fake = one_topic(1)
    control = fake.control(ApiKey.INIT_PRODUCER_ID, code, keep=True)
    async with producing(fake) as producer:
        delivery = producer.send_nowait("t", b"v")
        if refused:
            with pytest.raises(AuthorizationError):
                await delivery
            return
        await asyncio.sleep(20)
        control.remove()
        assert (await delivery).offset == 0


@virtual_time
async def test_idempotence_needs_a_broker_that_knows_it(producing: StartProducer) -> None:
    """C10: without InitProducerId the error says so; without idempotence it works."""
    fake = one_topic(1)
    fake.set_versions(ApiKey.INIT_PRODUCER_ID, 0, -1)
    async with producing(fake) as producer:
        with pytest.raises(UnsupportedVersionError, match="INIT_PRODUCER_ID"):
            await producer.send_and_wait("t", b"v")
    async with producing(fake, enable_idempotence=False) as producer:
        await producer.send_and_wait("t", b"v")
    assert fake.log("t", 0)[0].producer_id == -1
