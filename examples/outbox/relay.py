"""Sends the records of the outbox table, in the order of their ids.

    psql -f examples/outbox/schema.sql postgresql://localhost/shop
    python examples/outbox/relay.py postgresql://localhost/shop localhost:9092

Start it twice or more: one relay works, the others wait until its connection to the database ends.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
from typing import TYPE_CHECKING, Any

import asyncpg

from kafkaclient import KafkaError, Producer
from kafkaclient.errors import InvalidRecordError

if TYPE_CHECKING:
    from kafkaclient import Delivery

MOST = 1000  # rows at a time
STOP_TIMEOUT_S = 10.0
POLL_S = 5.0  # how often the table is read without a notification
ONE_RELAY = 7_105_120  # the number of an advisory lock; choose your own
DAY_MS = 86_400_000

log = logging.getLogger("relay")


async def send_waiting(connection: Any, producer: Producer) -> int:
    """Send the oldest rows that were not sent, wait for their deliveries, and mark them. Returns
    how many rows need nothing more.

    If the program ends before the mark, the next relay sends the records again.
    """
    rows = await connection.fetch(
        "select id, topic, key, value from outbox where sent_at is null and refused is null "
        "order by id limit $1",
        MOST,
    )
    deliveries: dict[int, Delivery] = {}
    refused: dict[int, KafkaError] = {}
    for number, topic, key, value in rows:
        headers = {"outbox-id": str(number).encode()}
        try:
            deliveries[number] = await producer.send(topic, value, key, headers=headers)
        except InvalidRecordError as error:
            refused[number] = error
        except KafkaError as error:  # for example: there is no such topic yet
            log.warning("row %d waits: %s", number, error)
    sent = []
    for number, delivery in deliveries.items():
        try:
            await delivery
            sent.append(number)
        except InvalidRecordError as error:
            refused[number] = error
        except KafkaError as error:
            log.warning("row %d is sent again: %s", number, error)
    await mark(connection, sent)
    for number, error in refused.items():
        log.error("row %d cannot be sent: %s", number, error)
        query = "update outbox set refused = $2 where id = $1"
        await connection.execute(query, number, str(error))
    return len(sent) + len(refused)


async def mark(connection: Any, sent: list[int]) -> None:
    query = "update outbox set sent_at = now() where id = any($1::bigint[])"
    await connection.execute(query, sent)


async def relay(connection: Any, producer: Producer) -> None:
    """Send what is in the table, and wait for more, for ever."""
    written = asyncio.Event()
    await connection.add_listener("outbox", lambda *_: written.set())
    # Held until the connection ends: two relays would mix up the order of the records.
    await connection.execute("select pg_advisory_lock($1)", ONE_RELAY)
    log.info("sending")
    while True:
        written.clear()
        if await send_waiting(connection, producer):
            continue
        try:
            async with asyncio.timeout(POLL_S):
                await written.wait()
        except TimeoutError:
            pass  # a notification may have been lost


async def run(dsn: str, bootstrap: str) -> None:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, task.cancel)
    connection = await asyncpg.connect(dsn)
    try:
        # A record whose delivery fails is sent again behind later ones. So let the producer, which
        # keeps the order, repeat for a day before it fails one.
        producer = Producer(bootstrap, delivery_timeout_ms=DAY_MS, max_block_ms=10_000)
        try:
            await producer.start()
            await relay(connection, producer)
        finally:
            await producer.stop(STOP_TIMEOUT_S)  # what is left stays in the table
    except asyncio.CancelledError:
        log.info("ended")
    finally:
        await connection.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="Sends the records of an outbox table.")
    parser.add_argument("database")
    parser.add_argument("bootstrap", help="host:port of one broker or more, comma-separated")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    asyncio.run(run(options.database, options.bootstrap))


if __name__ == "__main__":
    main()
