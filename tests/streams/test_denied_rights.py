"""Rights that brokers deny to an application, on the fake cluster."""

from __future__ import annotations

import asyncio
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.admin import Admin
from kafkaclient.broker_errors import broker_error
from kafkaclient.errors import AuthorizationError, TransactionAbortableError
from kafkaclient.producer.producer import Producer
from kafkaclient.streams import DeadLetter, RepartitionTopic
from kafkaclient.streams.config import StreamsConfig
from kafkaclient.streams.runtime.committer import Committer
from kafkaclient.streams.runtime.observer import Observer
from kafkaclient.streams.runtime.outputs import OutgoingRecord, Work, forget
from kafkaclient.streams.runtime.plain_output import PlainOutput
from kafkaclient.streams.runtime.topics import ApplicationTopics, prepare_topics
from kafkaclient.streams.topology import Processor, Topology
from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import FakeCluster
from kafkaclient.types import TopicPartition
from tests.streams.fakes import (
    CONFIG,
    FakeOutput,
    count,
    opened_gate,
    topology_of,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def hidden(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Topics that may not be described, as brokers treat them, and a place for Admin clients."""
    names, describe = set[str](), Admin.describe_topics

    async def describe_topics(admin: Admin, wanted: Any = None, **options: Any) -> Any:
        if denied := names.intersection(wanted or ()):
            raise broker_error(29, f"describing topic {denied}")
        found = await describe(admin, wanted, **options)
        return {name: each for name, each in found.items() if name not in names}

    monkeypatch.setattr(Admin, "describe_topics", describe_topics)
    return names


async def prepare(fake: FakeCluster, path: Path, topology: Topology) -> ApplicationTopics:
    config = StreamsConfig(bootstrap_servers=fake.bootstrap, application_id="app", state_dir=path)
    async with Admin(fake.bootstrap, dialer=fake, rng=Random(1)) as admin:
        return await prepare_topics(admin, config, topology)


@virtual_time
async def test_a_hidden_topic_is_not_missing(hidden: set[str], tmp_path: Path) -> None:
    """The list of all topics has neither. A hidden one is never made as a repartition topic."""
    fake = FakeCluster(1)
    for name in ("words", "dead"):
        fake.create_topic(name, assignments=[(0,)])
    run = partial(prepare, fake, tmp_path)

    async def emits_words(record: Any, emit: Any) -> None:
        await emit("words", b"")

    hidden.add("words")
    mentioning = Processor(topics=(RepartitionTopic("in"),), stores=(), process=emits_words)
    for topology in (topology_of(count), topology_of(count).with_processor(mentioning)):
        with pytest.raises(AuthorizationError, match="--operation Read --topic words"):
            await run(topology)
    async with Admin(fake.bootstrap, dialer=fake, rng=Random(1)) as admin:
        assert "app-words-repartition" not in await admin.list_topics()
    hidden.clear()
    hidden.add("dead")
    with pytest.raises(AuthorizationError, match=r"--operation Write --topic dead allows it$"):
        await run(topology_of(count, processing_exception_handler=DeadLetter("dead")))


@virtual_time
async def test_a_hidden_changelog_is_a_missing_right(hidden: set[str], tmp_path: Path) -> None:
    fake = FakeCluster(1)
    for name in ("words", "app-counts-changelog"):
        fake.create_topic(name, assignments=[(0,)])
    hidden.add("app-counts-changelog")
    with pytest.raises(AuthorizationError, match="app-counts-changelog"):
        await prepare(fake, tmp_path, topology_of(count))


@virtual_time
async def test_a_denied_right_is_the_same_error_exactly_once() -> None:
    output, crashes, denied = FakeOutput(), list[BaseException](), broker_error(29, "changelog")
    output.fail = TransactionAbortableError("nothing was committed")
    output.fail.__cause__ = denied
    committer = Committer(
        *(output, opened_gate(), float),  # type: ignore[arg-type]
        on_failed=lambda _task, error: None,
        crash=crashes.append,
        observer=Observer(),
        clock=float,
    )
    assert committer._checked(output.fail) is denied
    await committer.close()


@virtual_time
async def test_the_commit_alone_tells_of_its_failed_records(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The producer would log that nobody has checked the other deliveries."""
    fake = FakeCluster(1)
    for name in ("out", "changelog"):
        fake.create_topic(name, 2)
        for number in range(2):
            fake.fail_produce(name, number, 29)
    new = partial(Producer, fake.bootstrap, dialer=fake, rng=Random(1))
    output = PlainOutput(CONFIG, new, None, opened_gate())  # type: ignore[arg-type]
    await output.start()
    await output.prepare([OutgoingRecord("out", b"", None, 0, None, ())])
    records = [OutgoingRecord("out", b"", None, number % 2, None, ()) for number in range(4)]
    sent = [await output.send(each) for each in records]
    changes = {TopicPartition("changelog", n): {b"a": b"", b"b": None} for n in range(2)}
    with pytest.raises(AuthorizationError, match="may not Write on the topic"):
        await output.commit([Work({}, changes)], sent, 0)
    forget(sent)
    await output.abandon()
    await output.stop()
    await asyncio.sleep(60)
    assert not caplog.records
