"""Sends the records of the outbox table, in the order of their ids.

    psql -f examples/outbox/schema.sql postgresql://localhost/shop
    python examples/outbox/relay.py postgresql://localhost/shop localhost:9092

Start it twice or more: one relay works, the others wait until its connection to the database ends.
The relay ends with its connection; start it again.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import time
from typing import TYPE_CHECKING, Any

import asyncpg

from kafkaclient import KafkaError, Producer
from kafkaclient.errors import InvalidRecordError

if TYPE_CHECKING:
    from kafkaclient import Delivery

MOST = 1000  # rows at a time
STOP_TIMEOUT_S = 10.0
POLL_S = 5.0  # how often the table is read without a notification; also a statement's timeout
RETRY_S = 60.0  # a topic whose record could not be sent is tried again after this time
ONE_RELAY = 7_105_120  # the number of an advisory lock; choose your own
DAY_MS = 86_400_000

log = logging.getLogger("relay")


async def send_waiting(
    connection: Any, producer: Producer, failed: set[str], pending: dict[str, dict[int, Delivery]]
) -> int:
    """Send the oldest rows that were not sent, wait for their deliveries, and mark them. Returns
    how many rows need nothing more.

    ``pending`` has the deliveries that take longer than ``POLL_S``, by topic and row. Each call
    marks the rows of those that have ended. Rows of the topics in ``pending`` and ``failed`` are
    left out, so that such a topic holds up no other. A topic that a record cannot be sent to now,
    for example because it does not exist, is added to ``failed``: the rows behind it keep their
    order.

    If the program ends before the mark, the next relay sends the records again.
    """
    rows = await connection.fetch(
        "select id, topic, key, value from outbox where sent_at is null and refused is null "
        "and topic <> all($2) order by id limit $1",
        MOST,
        [*failed, *pending],
        timeout=POLL_S,
    )
    started: dict[str, dict[int, Delivery]] = {row[1]: {} for row in rows}
    refused: dict[int, KafkaError] = {}

    async def send(topic: str) -> None:
        for number, _, key, value in (row for row in rows if row[1] == topic):
            headers = {"outbox-id": str(number).encode()}
            try:
                delivery = await producer.send(topic, value, key, headers=headers)
            except KafkaError as error:
                if is_final(error):
                    refused[number] = error
                    continue
                log.warning("rows of topic %r wait from row %d on: %s", topic, number, error)
                failed.add(topic)
                return
            started[topic][number] = delivery

    # A topic that does not exist waits for max.block.ms; the others do not wait for it.
    await asyncio.gather(*map(send, started))
    deliveries = [each for by_row in started.values() for each in by_row.values()]
    if deliveries:
        await asyncio.wait(deliveries, timeout=POLL_S)
    pending |= started
    sent = take_ended(pending, refused, failed)
    for topic in started.keys() & pending.keys():
        log.warning(
            "topic %r: %d deliveries are retried, later rows wait", topic, len(pending[topic])
        )
    await mark(connection, sent)
    for number, error in refused.items():
        log.error("row %d cannot be sent: %s", number, error)
        query = "update outbox set refused = $2 where id = $1"
        await connection.execute(query, number, str(error), timeout=POLL_S)
    return len(sent) + len(refused)


def take_ended(
    pending: dict[str, dict[int, Delivery]], refused: dict[int, KafkaError], failed: set[str]
) -> list[int]:
    """Remove the deliveries that have ended from ``pending``. Returns the rows that were delivered,
    and adds the others to ``refused``, or their topics to ``failed``."""
    sent = []
    for topic, deliveries in list(pending.items()):
        for number in [number for number, each in deliveries.items() if each.done()]:
            error = deliveries.pop(number).exception()
            if error is None:
                sent.append(number)
            elif is_final(error):
                refused[number] = error
            else:
                log.warning("row %d is sent again: %s", number, error)
                failed.add(topic)
        if not deliveries:
            del pending[topic]
    return sent


def is_final(error: KafkaError) -> bool:
    """Whether this record can never be sent: the client or the broker's validation refuses it."""
    return isinstance(error, InvalidRecordError) and not error.maybe_written


async def mark(connection: Any, sent: list[int]) -> None:
    query = "update outbox set sent_at = now() where id = any($1::bigint[])"
    await connection.execute(query, sent, timeout=POLL_S)


async def relay(connection: Any, producer: Producer) -> None:
    """Send what is in the table, and wait for more, for ever."""
    written = asyncio.Event()
    await connection.add_listener("outbox", lambda *_: written.set())
    # Held until the connection ends: two relays would mix up the order of the records.
    await connection.execute("select pg_advisory_lock($1)", ONE_RELAY)
    log.info("sending")
    failed, retry_at = set[str](), 0.0
    pending: dict[str, dict[int, Delivery]] = {}
    while True:
        if time.monotonic() >= retry_at:
            failed, retry_at = set[str](), time.monotonic() + RETRY_S
        written.clear()
        if await send_waiting(connection, producer, failed, pending):
            continue
        try:
            async with asyncio.timeout(POLL_S):
                await written.wait()
        except TimeoutError:
            pass  # a notification may have been lost


async def run(dsn: str, bootstrap: str) -> None:
    """Relay until SIGTERM or SIGINT. Raises ConnectionError if the connection to the database ends:
    then another relay may have the lock."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, task.cancel)
    connection = await asyncpg.connect(dsn)

    def lost(_connection: Any) -> None:
        task.cancel()

    connection.add_termination_listener(lost)
    try:
        # A record whose delivery fails is sent again behind later ones. So let the producer, which
        # keeps the order, repeat for a day before it fails one.
        producer = Producer(bootstrap, delivery_timeout_ms=DAY_MS, max_block_ms=10_000)
        stop_timeout_s = 0.0  # nothing more may be sent without the lock
        try:
            await producer.start()
            await relay(connection, producer)
        except asyncio.CancelledError:
            if not connection.is_closed():
                stop_timeout_s = STOP_TIMEOUT_S  # a signal: what is left stays in the table
            raise
        finally:
            connection.remove_termination_listener(lost)
            await producer.stop(stop_timeout_s)
    except asyncio.CancelledError:
        if connection.is_closed():
            raise ConnectionError("the connection to the database has ended") from None
        log.info("ended")
    finally:
        await connection.close(timeout=STOP_TIMEOUT_S)


def main() -> None:
    parser = argparse.ArgumentParser(description="Sends the records of an outbox table.")
    parser.add_argument("database")
    parser.add_argument("bootstrap", help="host:port of one broker or more, comma-separated")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    asyncio.run(run(options.database, options.bootstrap))


if __name__ == "__main__":
    main()
