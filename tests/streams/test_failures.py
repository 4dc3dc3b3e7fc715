"""Which event a client's error causes for its task."""

from __future__ import annotations

import pytest

from kafkaclient import Producer
from kafkaclient.broker_errors import broker_error
from kafkaclient.errors import (
    KafkaTimeoutError,
    MetadataTimeoutError,
    RecordTooLargeError,
    TransactionAbortableError,
)
from kafkaclient.streams.runtime.task_states import TaskEvent, event_for
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
    assert event_for(raised.value) is None


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
    assert event_for(raised.value) is TaskEvent.FAILED


@pytest.mark.parametrize(
    ("error", "event"),
    [
        (MetadataTimeoutError("no broker answers"), TaskEvent.FAILED),
        (TransactionAbortableError("no"), TaskEvent.FAILED),
        (broker_error(90), TaskEvent.MIGRATED),
        (broker_error(47), TaskEvent.MIGRATED),
        (broker_error(22), TaskEvent.FAILED),
        (KafkaTimeoutError("late"), TaskEvent.FAILED),
        (RecordTooLargeError("too large"), None),
        (ValueError("a processor's"), None),
    ],
)
def test_events_of_errors(error: Exception, event: TaskEvent | None) -> None:
    assert event_for(error) is event
