"""What an error means for a task, errors as the clients raise them."""

from __future__ import annotations

import pytest
from aiokafka import errors as consumer_errors

from kafkaclient import Producer
from kafkaclient.broker_errors import broker_error
from kafkaclient.errors import MetadataTimeoutError, RecordTooLargeError, TransactionAbortableError
from kafkaclient.streams.runtime.failures import event_for
from kafkaclient.streams.runtime.task_states import TaskEvent
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import FakeCluster


@pytest.mark.parametrize("transactional_id", [None, "t"])
@virtual_time
async def test_a_topic_that_does_not_exist_is_the_applications(
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
        ) as told:
            await producer.send("nowhere", b"v")
    assert event_for(told.value) is None


@pytest.mark.parametrize(
    ("error", "event"),
    [
        (MetadataTimeoutError("no broker answers"), TaskEvent.FAILED),
        (TransactionAbortableError("no"), TaskEvent.FAILED),
        (broker_error(90), TaskEvent.MIGRATED),
        (broker_error(47), TaskEvent.MIGRATED),
        (broker_error(22), TaskEvent.FAILED),
        (consumer_errors.KafkaTimeoutError(), TaskEvent.FAILED),
        (RecordTooLargeError("too large"), None),
        (ValueError("a processor's"), None),
    ],
)
def test_what_errors_mean(error: Exception, event: TaskEvent | None) -> None:
    assert event_for(error) is event
