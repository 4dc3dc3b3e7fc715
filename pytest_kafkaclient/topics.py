"""Topics for one test each."""

from __future__ import annotations

import asyncio
import re
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from kafkaclient.admin import Admin, NewTopic
from kafkaclient.errors import KafkaError, UnknownTopicError
from kafkaclient.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

    from kafkaclient.testing import FakeCluster

T = TypeVar("T")

_LONGEST = 60  # characters of the test's name
_READY_S = 20.0  # seconds until the leaders serve a new topic
_POLL_S = 0.05


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of ``asyncio.run`` in another thread: this one may be running an event loop."""
    with ThreadPoolExecutor(1, thread_name_prefix="pytest-kafkaclient") as executor:
        return executor.submit(asyncio.run, coroutine).result()


def unique_name(test: str) -> str:
    """A topic name that no other test uses, on whatever cluster."""
    return f"{re.sub('[^a-zA-Z0-9]', '-', test)[:_LONGEST]}-{uuid.uuid4().hex[:12]}"


def create(
    bootstrap: str,
    name: str,
    *,
    partitions: int = 1,
    replication_factor: int = -1,
    configs: Mapping[str, str] | None = None,
) -> None:
    """Create a topic, and wait until the leader of each partition serves it."""
    run(create_topic(bootstrap, NewTopic(name, partitions, replication_factor, configs or {})))


def delete(bootstrap: str, name: str) -> None:
    """Delete a topic, unless the test has deleted it."""
    run(_delete(bootstrap, name))


def create_on_fake(
    fake: FakeCluster,
    name: str,
    *,
    partitions: int = 1,
    replication_factor: int = 1,
    configs: Mapping[str, str] | None = None,
) -> None:
    """:func:`create` on a fake cluster, which applies two of the configurations."""
    applied: Any = {
        key.replace(".", "_"): int(value)
        for key, value in (configs or {}).items()
        if key in ("max.message.bytes", "min.insync.replicas")
    }
    fake.create_topic(name, partitions, replication_factor, **applied)


async def create_topic(bootstrap: str, topic: NewTopic) -> None:
    """Create a topic, and wait until the leader of each partition serves it. Raises TimeoutError
    after 20 s, and what :meth:`kafkaclient.admin.Admin.create_topics` returns."""
    async with Admin(bootstrap) as admin:
        error = (await admin.create_topics([topic]))[topic.name]
        if error is not None:
            raise error
    async with asyncio.timeout(_READY_S), Reader(bootstrap) as reader:
        while not await _is_served(reader, topic.name):  # noqa: ASYNC110 - the broker's event
            await asyncio.sleep(_POLL_S)


async def _is_served(reader: Reader, topic: str) -> bool:
    """Whether each leader gives the end offset of its partition. Metadata name a leader a moment
    before it serves the partition."""
    try:
        await reader.offsets(topic, at="latest")
    except KafkaError as error:
        if not error.retriable:
            raise
        return False
    return True


async def _delete(bootstrap: str, name: str) -> None:
    async with Admin(bootstrap) as admin:
        error = (await admin.delete_topics([name]))[name]
        if error is not None and not isinstance(error, UnknownTopicError):
            raise error
