"""What a serializer costs beyond its own time: ``python -m benchmarks.serializers``.

``send_nowait`` into open batches of an in-memory cluster, with each kind of serializer, and with
the same serializer called by hand before ``send_nowait``. The difference is what the producer adds.
The ways take turns in one run, each turn of a few thousand records; shown are medians. The target
is at most 0.3 us for a serializer with a cached schema.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import statistics
import time
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka.schema_registry import AsyncSchemaRegistryClient

from kafkaclient import Producer, SerializationContext
from kafkaclient.schema_registry import AvroSerializer
from kafkaclient.testing.fake import FakeCluster

__all__ = ["main", "measure"]

_SCHEMA = {"type": "record", "name": "F", "fields": [{"name": "carrier", "type": "string"}]}
_VALUE = {"carrier": "UA"}


class _Json:
    def serialize(self, value: Any, _context: SerializationContext) -> bytes:
        return json.dumps(value).encode()


class Way(NamedTuple):
    """One kind of serializer, and how it is called by hand: a function, arguments after the
    value."""

    name: str
    serializer: Any
    by_hand: tuple[Any, ...]


def _to_json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _ways() -> list[Way]:
    with_context = _Json()
    registry = AsyncSchemaRegistryClient.new_client({"url": "mock://benchmark"})
    avro = AvroSerializer(registry, json.dumps(_SCHEMA))
    context = SerializationContext("t", "value", [])
    return [
        Way("function", _to_json, (_to_json,)),
        Way("with context", with_context, (with_context.serialize, context)),
        Way("Avro, cached schema", avro, (avro.serialize, context)),
    ]


async def measure(turns: int, records: int) -> dict[str, tuple[float, float]]:
    """By way: microseconds a record with the serializer by hand, and what the producer adds."""
    fake = FakeCluster(3)
    fake.create_topic("t", 3)
    medians: dict[str, tuple[float, float]] = {}
    async with Producer(fake.bootstrap, dialer=fake, linger_ms=50) as plain:
        for way in _ways():
            hands, added = list[float](), list[float]()
            options = {"linger_ms": 50, "value_serializer": way.serializer}
            async with Producer(fake.bootstrap, dialer=fake, **options) as producer:
                await producer.send_and_wait("t", _VALUE)  # the first use of a schema
                for turn in range(turns + 1):
                    hand = await _turn(plain, records, way.by_hand)
                    ours = await _turn(producer, records, None)
                    if turn:  # the first one warms up
                        hands.append(hand)
                        added.append(ours - hand)
            medians[way.name] = statistics.median(hands), statistics.median(added)
    return medians


async def _turn(producer: Producer, records: int, by_hand: tuple[Any, ...] | None) -> float:
    """Microseconds of CPU a record in the loop of calls; the records are delivered after it."""
    send, value = producer.send_nowait, _VALUE
    gc.collect()
    gc.disable()
    begun = time.thread_time()
    if by_hand is None:
        for _ in range(records):
            send("t", value)
    else:
        serialize, *context = by_hand
        for _ in range(records):
            send("t", serialize(value, *context))
    took = time.thread_time() - begun
    gc.enable()
    await producer.flush()
    return took / records * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=101)
    parser.add_argument("--records", type=int, default=1000, help="records of a turn")
    parser.add_argument("--out", type=Path, help="keep the figures here, as JSON")
    arguments = parser.parse_args()
    medians = asyncio.run(measure(arguments.turns, arguments.records))
    if arguments.out is not None:
        rows = [
            {"way": name, "by_hand_us": round(hand, 3), "added_us": round(more, 3)}
            for name, (hand, more) in medians.items()
        ]
        arguments.out.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    for name, (hand, more) in medians.items():
        print(f"{name:22} by hand {hand:5.2f} us, as an option {more:+5.2f} us")


if __name__ == "__main__":
    main()
