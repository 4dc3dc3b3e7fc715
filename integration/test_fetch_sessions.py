"""Reads of many partitions, of which few have records, on real brokers (KIP-227)."""

from __future__ import annotations

import asyncio
from statistics import median
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient import Producer
from kafkaclient.admin import Admin
from kafkaclient.reader import Reader
from kafkaclient.testing.cluster import LocalCluster
from kafkaclient.wire.fetch import FetchCall

if TYPE_CHECKING:
    from kafkaclient.wire.fetch import FetchResult

pytestmark = [pytest.mark.timeout(180), pytest.mark.local_cluster]

PARTITIONS = 200
SLOTS = "max.incremental.fetch.session.cache.slots"


class Sizes:
    """The bytes of requests and responses."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.sent: list[int] = []
        self.got: list[int] = []
        encode, decode = FetchCall.encode, FetchCall.decode

        def encoded(call: FetchCall, *given: Any) -> bytes:
            frame = encode(call, *given)
            self.sent.append(len(frame))
            return frame

        def decoded(call: FetchCall, version: int, payload: Any) -> FetchResult:
            self.got.append(len(payload))
            return decode(call, version, payload)

        patch.setattr(FetchCall, "encode", encoded)
        patch.setattr(FetchCall, "decode", decoded)


@pytest.mark.full
@pytest.mark.parametrize("slots", [1_000, 0, 1])
async def test_few_of_many_partitions_have_records(
    monkeypatch: pytest.MonkeyPatch, slots: int
) -> None:
    """Also after a restart of the broker, and if it has no room for the session."""
    sizes, expected = Sizes(monkeypatch), dict.fromkeys(range(PARTITIONS), 0)
    async with LocalCluster(brokers=1, config={SLOTS: str(slots)}) as cluster:
        async with Admin(cluster.bootstrap) as admin:
            await admin.create_topic("t", PARTITIONS, 1)
        async with Producer(cluster.bootstrap) as producer, Reader(cluster.bootstrap) as reader:
            others = [reader.read({("t", n): 0 for n in range(PARTITIONS)}) for _ in range(2)]
            for other in others:  # they have what sessions there are
                await other.wait(1)
            reading = reader.read({("t", number): 0 for number in range(PARTITIONS)})
            seen = dict.fromkeys(range(PARTITIONS), 0)

            async def take(chosen: range) -> None:
                for number in chosen:
                    expected[number] += 1
                    await producer.send_and_wait("t", b"%d" % expected[number], partition=number)
                async with asyncio.timeout(60):
                    while seen != expected:
                        batch = await anext(reading)
                        for record in batch:
                            seen[batch.partition] += 1
                            assert record.value == b"%d" % seen[batch.partition]

            await take(range(PARTITIONS))
            sizes.sent.clear()
            sizes.got.clear()
            for _ in range(10):
                await take(range(5, 9))
            if slots == 1_000:
                assert median(sizes.sent) < 200
                assert median(sizes.got) < 500
            elif not slots:
                assert median(sizes.sent) > 33 * (PARTITIONS - 4)
            await cluster.kill(cluster.brokers[0])
            await cluster.heal()
            for _ in range(3):
                await take(range(100, 104))
