"""Whether a task can go on after a client's error."""

from __future__ import annotations

import pytest

from kafkaclient import Producer
from kafkaclient.errors import (
    MetadataTimeoutError,
    TransactionAbortableError,
)
from kafkaclient.streams.tasks import is_recoverable
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import FakeCluster
from kafkaclient.wire.api import ApiKey


@pytest.mark.parametrize("transactional_id", [None, "t"])
@virtual_time
async def test_a_missing_topic_ends_the_application(
    transactional_id: str | None,
) -> None:
    """It was tried again for ever."""
    fake = FakeCluster(1, auto_create_topics=False)
    async with Producer(
        fake.bootstrap, dialer=fake, max_block_ms=2000, transactional_id=transactional_id
    ) as producer:
        if transactional_id is not None:
            await producer.begin_transaction()
        with pytest.raises(
            MetadataTimeoutError, match=r"topic 'nowhere'.*create the topic"
        ) as raised:
            await producer.send("nowhere", b"v")
    assert not is_recoverable(raised.value)


@pytest.mark.parametrize("code", [48, 120], ids=["INVALID_TXN_STATE", "TRANSACTION_ABORTABLE"])
@pytest.mark.parametrize("key", [ApiKey.PRODUCE, ApiKey.END_TXN], ids=lambda key: key.name)
@virtual_time
async def test_a_transaction_aborted_by_brokers_is_retried(key: ApiKey, code: int) -> None:
    fake = FakeCluster(1)
    fake.create_topic("t", 1)
    async with Producer(fake.bootstrap, dialer=fake, transactional_id="x") as producer:
        await producer.begin_transaction()
        fake.control(key, code)
        await producer.send("t", b"v")
        with pytest.raises(TransactionAbortableError) as raised:
            await producer.commit_transaction()
        await producer.abort_transaction()
    assert is_recoverable(raised.value)
