"""Brokers die, stall and answer with errors: each span ends once, with its record's outcome."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.trace import StatusCode

from kafkaclient.errors import KafkaError
from kafkaclient.opentelemetry import instrument_producer
from kafkaclient.opentelemetry.attributes import error_type
from kafkaclient.testing.clock import virtual_time
from tests.opentelemetry.support import header, records
from tests.producer.support import start_producer

if TYPE_CHECKING:
    from kafkaclient import Delivery, Producer
    from kafkaclient.testing.fake import FakeCluster
    from tests.opentelemetry.support import Seen

OFFSET, PARTITION = "messaging.kafka.offset", "messaging.destination.partition.id"


async def break_brokers(fake: FakeCluster, rng: Random) -> None:
    """Kills, stalls, cuts and errors, one after the other; at the end all brokers run."""
    for _ in range(12):
        await asyncio.sleep(rng.uniform(0.05, 0.4))
        broker = rng.randrange(3)
        fault = rng.randrange(4)
        if fault == 0:
            fake.stop_broker(broker)
            await asyncio.sleep(rng.uniform(0.1, 1.5))
            fake.start_broker(broker)
        elif fault == 1:
            fake.stall_broker(broker)
            await asyncio.sleep(rng.uniform(0.1, 1.5))
            fake.resume_broker(broker)
        elif fault == 2:
            fake.drop_connections(broker)
        else:
            for partition in range(6):
                fake.fail_produce("t", partition, rng.choice([6, 7, 19, 29, 87]))


class Load:
    """Sends 200 records from each of four tasks, and keeps what the caller got, by key."""

    def __init__(self, producer: Producer, rng: Random) -> None:
        self._producer, self._rng = producer, rng
        self.deliveries: dict[str, Delivery] = {}
        self.raised: dict[str, KafkaError] = {}

    async def run(self, fake: FakeCluster) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(break_brokers(fake, self._rng))
            for name in range(4):
                group.create_task(self._send(name))

    async def _send(self, name: int) -> None:
        for n in range(200):
            key = f"{name}-{n}"
            try:
                if n % 3 == 0:
                    self.deliveries[key] = self._producer.send_nowait("t", b"", key)
                elif n % 3 == 1:
                    self.deliveries[key] = await self._producer.send("t", b"", key)
                else:  # partitions are chosen by load, and the caller does not wait for long
                    async with asyncio.timeout(self._rng.uniform(0.01, 0.5)):
                        await self._producer.send_and_wait("t", b"")
            except KafkaError as error:
                self.raised[key] = error
            except TimeoutError:
                pass
            await asyncio.sleep(self._rng.uniform(0, 0.04))

    def check(self, facts: dict[str, Any]) -> None:
        """That the span of a record with a key says what the caller got."""
        key = facts.get("messaging.kafka.message.key")
        if key is None:
            return
        error = self.raised.get(key) if key in self.raised else self.deliveries[key].exception()
        if error is not None:
            assert facts["error.type"] == error_type(error)
        else:
            result = self.deliveries[key].result()
            assert (facts[PARTITION], facts[OFFSET]) == (str(result.partition), result.offset)


@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.full) for n in (2, 3))])
@virtual_time
async def test_each_span_has_the_outcome_of_its_delivery(
    fake: FakeCluster, seen: Seen, seed: int, idempotent: bool
) -> None:
    fake.round_trip_s = 0.01
    async with start_producer(
        fake,
        enable_idempotence=idempotent,
        linger_ms=5,
        delivery_timeout_ms=1000,
        request_timeout_ms=300,
        max_block_ms=500,
        buffer_memory=20_000,
        on_error=lambda _: None,
        key_serializer=str.encode,
    ) as producer:
        instrument_producer(producer, tracer_provider=seen.provider, record_keys=True)
        load = Load(producer, Random(seed))
        await load.run(fake)
        for broker in range(3):
            fake.stop_broker(broker)
        for n in range(5):
            load.deliveries[f"last-{n}"] = producer.send_nowait("t", b"", f"last-{n}")
        await producer.stop(0.3)
        await asyncio.sleep(0)

    assert len(seen.spans) == 4 * 200 + 5
    logged: dict[str | None, list[tuple[str, int]]] = {}
    for partition, record in records(fake):
        logged.setdefault(header(record), []).append((str(partition), record.offset))
    assert None not in logged
    failures = 0
    for traceparent, span in seen.by_traceparent().items():  # each ended once
        facts: dict[str, Any] = dict(span.attributes or {})
        places, failed = logged.get(traceparent, []), "error.type" in facts
        assert span.status.status_code is (StatusCode.ERROR if failed else StatusCode.UNSET)
        if failed:
            assert OFFSET not in facts
            assert not places or facts["kafkaclient.maybe_written"]
        else:
            assert (facts[PARTITION], facts[OFFSET]) in places
            assert len(places) == 1 or not idempotent
        load.check(facts)
        failures += failed
    assert 5 <= failures < 600
