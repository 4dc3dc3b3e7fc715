"""The fake's transaction coordinator: what brokers do, as far as a producer can see."""

from __future__ import annotations

from typing import Any

import pytest

from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import ErrorCode, FakeCluster
from kafkaclient.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from kafkaclient.wire.api_versions import ApiVersionsCall
from kafkaclient.wire.producer_ids import InitProducerIdCall
from kafkaclient.wire.transactions import (
    AddOffsetsToTxnCall,
    AddPartitionsToTxnCall,
    CoordinatorKind,
    EndTxnCall,
    EndTxnV2Call,
    FindCoordinatorCall,
    OffsetFetchCall,
    TxnIdentity,
    TxnOffsetCommitCall,
    TxnOffsetCommitV2Call,
)

T0 = TopicPartition("t", 0)
GROUP = ConsumerGroupMetadata("g")
OFFSETS = {T0: OffsetAndMetadata(5)}


def one_broker(**options: Any) -> FakeCluster:
    fake = FakeCluster(1, **options)
    fake.create_topic("t", 1)
    return fake


async def identity(client: Any) -> TxnIdentity:
    answer = await client.call(InitProducerIdCall("tx"))
    return TxnIdentity("tx", answer.producer_id, answer.producer_epoch)


@pytest.mark.parametrize("v2", [True, False])
@virtual_time
async def test_the_feature_level(dial: Any, v2: bool) -> None:
    client = await dial(FakeCluster(transactions_v2=v2))
    features = (await client.call(ApiVersionsCall())).features
    assert features == {"transaction.version": 2 if v2 else 1}


@virtual_time
async def test_only_the_coordinator_answers(dial: Any) -> None:
    fake = FakeCluster()
    clients = [await dial(fake, node) for node in range(3)]
    fake.move_coordinator("tx", 2)
    found = await clients[0].call(FindCoordinatorCall(CoordinatorKind.TRANSACTION, "tx"))
    assert (found.error_code, found.node_id) == (0, 2)
    codes = [(await client.call(InitProducerIdCall("tx"))).error_code for client in clients]
    assert codes == [ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR, 0]
    fake.stop_broker(2)
    found = await clients[0].call(FindCoordinatorCall(CoordinatorKind.TRANSACTION, "tx"))
    assert found.node_id == fake.coordinator("tx") != 2


@virtual_time
async def test_v1(dial: Any, transactional_batch: Any) -> None:
    fake = one_broker(transactions_v2=False)
    client = await dial(fake)
    who = await identity(client)

    async def produce(value: bytes, sequence: int) -> int:
        batch = transactional_batch(who, sequence, value)
        (result,) = (await client.produce(("t", 0, batch), version=11, transaction="tx")).partitions
        return result.error_code

    assert await produce(b"early", 0) == ErrorCode.INVALID_TXN_STATE
    assert (await client.call(EndTxnCall(who, commit=True))).error_code == 48
    added = await client.call(AddPartitionsToTxnCall(who, (T0, TopicPartition("t", 9))))
    assert list(added.codes.values()) == [55, 3]
    assert (await client.call(AddPartitionsToTxnCall(who, (T0,)))).error_code == 0
    assert await produce(b"1", 0) == 0
    assert fake.committed_log("t", 0) == []
    assert fake.last_stable_offset("t", 0) == 0
    assert (await client.call(EndTxnCall(who, commit=True))).error_code == 0
    assert (await client.call(EndTxnCall(who, commit=True))).error_code == 0  # once more
    assert (await client.call(EndTxnCall(who, commit=False))).error_code == 48
    assert [r.value for r in fake.committed_log("t", 0)] == [b"1"]
    assert [(m.offset, m.commit) for m in fake.markers("t", 0)] == [(1, True)]
    assert fake.last_stable_offset("t", 0) == 2


@virtual_time
async def test_v2(dial: Any, transactional_batch: Any) -> None:
    """Partitions come by themselves, and every end raises the epoch."""
    fake = one_broker()
    client = await dial(fake)
    who = await identity(client)
    batch = transactional_batch(who, 0, b"1")
    (result,) = (await client.produce(("t", 0, batch), transaction="tx")).partitions
    assert result.error_code == 0
    ended = await client.call(EndTxnV2Call(who, commit=False))
    assert (ended.error_code, ended.producer_id) == (0, who.producer_id)
    assert ended.producer_epoch == who.producer_epoch + 1
    assert await client.call(EndTxnV2Call(who, commit=False)) == ended  # once more
    assert (await client.call(EndTxnV2Call(who, commit=True))).error_code == 48
    assert fake.committed_log("t", 0) == []
    late = transactional_batch(who, 1, b"late")
    (result,) = (await client.produce(("t", 0, late), transaction="tx")).partitions
    assert result.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    # An abort needs no transaction.
    who = who._replace(producer_epoch=ended.producer_epoch)
    assert (await client.call(EndTxnV2Call(who, commit=True))).error_code == 48
    assert (await client.call(EndTxnV2Call(who, commit=False))).error_code == 0


@virtual_time
async def test_a_new_instance_fences_the_old_one(dial: Any) -> None:
    fake = one_broker()
    client = await dial(fake)
    old = await identity(client)
    await client.call(TxnOffsetCommitV2Call(old, GROUP, OFFSETS))
    busy = await client.call(InitProducerIdCall("tx"))
    assert busy.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    new = await identity(client)
    assert new.producer_epoch > old.producer_epoch
    assert (await client.call(EndTxnV2Call(old, commit=True))).error_code == 90
    assert fake.committed_offset("g", "t", 0) is None
    stranger = new._replace(producer_id=1)
    assert (await client.call(EndTxnV2Call(stranger, commit=True))).error_code == 49


@virtual_time
async def test_an_instance_may_raise_its_epoch(dial: Any) -> None:
    """KIP-360: once, however often it asks."""
    fake = one_broker()
    client = await dial(fake)
    who = await identity(client)
    raised = InitProducerIdCall("tx", 1000, who.producer_id, who.producer_epoch)
    first, again = await client.call(raised), await client.call(raised)
    assert first == again
    assert first.producer_epoch == who.producer_epoch + 1
    await client.call(InitProducerIdCall("tx"))
    assert (await client.call(raised)).error_code == ErrorCode.PRODUCER_FENCED


@virtual_time
async def test_offsets_wait_for_the_commit(dial: Any) -> None:
    fake = one_broker()
    client = await dial(fake)
    who = await identity(client)
    fetch, early = OffsetFetchCall("g", (T0,)), TxnOffsetCommitCall(who, GROUP, OFFSETS)
    assert (await client.call(early)).error_code == ErrorCode.INVALID_TXN_STATE
    assert (await client.call(AddOffsetsToTxnCall(who, "g"))).error_code == 0
    assert (await client.call(early)).error_code == 0
    assert (await client.call(fetch)).error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    unstable = OffsetFetchCall("g", (T0,), require_stable=False)
    assert (await client.call(unstable)).offsets[T0].offset == -1
    await client.call(EndTxnCall(who, commit=True))
    assert (await client.call(fetch)).offsets[T0].offset == 5
    fake.rebalance("g", 3)
    for generation, code in ((2, ErrorCode.ILLEGAL_GENERATION), (3, 0), (-1, 0)):
        group = ConsumerGroupMetadata("g", generation, "m")
        answer = await client.call(TxnOffsetCommitV2Call(who, group, OFFSETS))
        assert answer.error_code == code
