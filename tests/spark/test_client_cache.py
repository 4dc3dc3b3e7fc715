"""What a worker keeps between tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient import Producer, telemetry
from kafkaclient.errors import BootstrapError, MetadataTimeoutError
from kafkaclient.reader import Reader
from kafkaclient.spark.client_cache import ClientCache

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def given(fake) -> dict[str, str]:
    return {"bootstrap.servers": fake.bootstrap}


def sent(cache: ClientCache, given: dict[str, str], value: bytes) -> Producer:
    with cache.client(Producer, given) as producer:
        assert cache.loop.run(_send(producer, value)).topic == "t"
    return producer


async def _send(producer: Producer, value: bytes) -> Any:
    return await producer.send_and_wait("t", value)


def test_the_next_task_reuses_the_client(cache: ClientCache, given: dict[str, str]) -> None:
    first = sent(cache, given, b"a")
    assert sent(cache, dict(reversed(list(given.items()))), b"b") is first
    with cache.client(Reader, given) as reader, cache.client(Reader, given) as other:
        assert other is not reader  # in use, so not available
    assert sent(cache, given | {"linger.ms": "1"}, b"c") is not first


def test_the_client_of_a_failed_task_is_not_kept(cache: ClientCache, given: dict[str, str]) -> None:
    first = sent(cache, given, b"a")
    with pytest.raises(LookupError), cache.client(Producer, given):
        raise LookupError
    assert "stopped" in repr(first)
    assert sent(cache, given, b"b") is not first


def test_a_client_with_telemetry_is_closed_after_its_task(
    cache: ClientCache, given: dict[str, str], tmp_path: Path
) -> None:
    """Spark ends workers by killing them; what was recorded is on the disk before that."""
    producer = sent(cache, given | {"telemetry": str(tmp_path)}, b"a")
    assert "stopped" in repr(producer)
    assert len(telemetry.read(tmp_path)) == 1


def test_a_client_that_cannot_start(cache: ClientCache, fake, given: dict[str, str]) -> None:
    for broker in range(3):
        fake.stop_broker(broker)
    with (
        pytest.raises(BootstrapError),
        cache.client(Producer, given | {"max.block.ms": "10"}) as _,
    ):
        pass


def test_an_unused_client_is_closed(fake, given: dict[str, str]) -> None:
    now = [100.0]
    cache = ClientCache(dialer=fake, clock=lambda: now[0])
    first = sent(cache, given, b"a")
    now[0] += 59
    second = sent(cache, given | {"linger.ms": "1"}, b"b")
    assert "stopped" not in repr(first)
    now[0] += 2
    sent(cache, given | {"linger.ms": "1"}, b"c")
    assert "stopped" in repr(first)
    assert "stopped" not in repr(second)
    cache.close()
    assert "stopped" in repr(second)
    assert not any(fake.connections(broker) for broker in range(3))
    cache.close()


def test_a_client_idle_for_too_long_is_closed(fake, given: dict[str, str]) -> None:
    now = [100.0]
    cache = ClientCache(dialer=fake, clock=lambda: now[0])
    first = sent(cache, given, b"a")
    now[0] += 61
    assert sent(cache, given, b"b") is not first
    assert "stopped" in repr(first)
    cache.close()


def test_topics_may_change_between_tasks(
    cache: ClientCache, fake, fill: Callable[..., None], given: dict[str, str], monkeypatch: Any
) -> None:
    monkeypatch.setattr("kafkaclient.spark.client_cache._MAX_METADATA_AGE_S", 0.0)

    async def send_some(producer: Producer) -> None:
        for n in range(100):
            await producer.send("t", b"v", key=b"%d" % n)
        await producer.flush()

    def write() -> None:
        with cache.client(
            Producer, given | {"request.timeout.ms": "4000", "delivery.timeout.ms": "5000"}
        ) as producer:
            cache.loop.run(send_some(producer))

    def read(records: int) -> None:
        with cache.client(Reader, given) as reader:
            found = cache.loop.iterate(reader.read({("t", 0): (0, records)}))
            assert sum(len(list(batch)) for batch in found) == records

    fill(0, 3)
    read(3)
    write()
    for partitions in (12, 1):
        fake.delete_topic("t")
        fake.create_topic("t", partitions)
        fill(0, 4)
        read(4)
        write()
        used = [n for n in range(partitions) if fake.log("t", n)]
        assert used == list(range(partitions))


@pytest.mark.parametrize("max_age_s", [0.0, 1e9])
def test_a_deleted_topic_is_not_created_again(
    cache: ClientCache, fake, given: dict[str, str], monkeypatch: Any, max_age_s: float
) -> None:
    monkeypatch.setattr("kafkaclient.spark.client_cache._MAX_METADATA_AGE_S", max_age_s)

    async def send(producer: Producer, topic: str) -> None:
        await producer.send_and_wait(topic, b"v")
        await producer.refresh_metadata()  # as after metadata.max.age.ms

    with cache.client(Producer, given) as producer:
        cache.loop.run(send(producer, "t"))
    fake.delete_topic("t")
    with cache.client(Producer, given) as again:
        assert again is producer
        cache.loop.run(send(producer, "other"))
    assert fake.topic_id("other")
    with pytest.raises(ValueError, match="unknown topic"):
        fake.topic_id("t")
    with cache.client(Producer, given) as again:
        cache.loop.run(send(producer, "t"))  # the task's own topic
    assert fake.topic_id("t")


@pytest.mark.parametrize("error", [MetadataTimeoutError("no broker"), LookupError("a defect")])
def test_a_client_that_cannot_refresh_its_metadata_is_replaced(
    cache: ClientCache, given: dict[str, str], monkeypatch: Any, error: Exception
) -> None:
    monkeypatch.setattr("kafkaclient.spark.client_cache._MAX_METADATA_AGE_S", 0.0)
    first = sent(cache, given, b"a")

    async def fail(_client: Producer, **_options: object) -> None:
        raise error

    monkeypatch.setattr(Producer, "refresh_metadata", fail)
    assert sent(cache, given, b"b") is not first
    assert "stopped" in repr(first)


def test_a_client_that_cannot_be_closed_fails_no_task(
    cache: ClientCache, given: dict[str, str], monkeypatch: Any, caplog: pytest.LogCaptureFixture
) -> None:
    real = Producer.stop

    async def fail(producer: Producer, timeout: float | None = None) -> None:
        await real(producer, timeout)
        raise OSError("no more")

    monkeypatch.setattr(Producer, "stop", fail)
    sent(cache, given | {"acks": "0", "enable.idempotence": "false"}, b"a")
    with pytest.raises(LookupError), cache.client(Producer, given):
        raise LookupError
    assert caplog.text.count("could not be closed") == 2


def test_options_do_not_appear_in_the_cache(cache: ClientCache, given: dict[str, str]) -> None:
    """There may be passwords among them."""
    sent(cache, given | {"metadata.max.age.ms": "123456"}, b"a")
    assert "123456" not in repr(vars(cache))


def test_reads_one_after_the_other_use_the_same_connections(
    cache: ClientCache, fake, fill: Callable[..., None], given: dict[str, str]
) -> None:
    fill(1, 30)

    def read(reader: Reader) -> Iterator[int]:
        for batch in cache.loop.iterate(reader.read({("t", 1): (0, 30)})):
            yield from (record.offset for record in batch)

    with cache.client(Reader, given) as reader:
        assert list(read(reader)) == list(range(30))
        before = [fake.connections(broker) for broker in range(3)]
        for _ in range(3):
            assert list(read(reader)) == list(range(30))
        assert [fake.connections(broker) for broker in range(3)] == before
