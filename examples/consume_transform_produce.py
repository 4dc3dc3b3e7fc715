"""Read orders from one topic, write invoices to another: each order once, whatever fails.

    python examples/consume_transform_produce.py localhost:9092 orders invoices --id a

What is read and what is written are bound together by transactions: the offsets of the orders are
committed with their invoices, or neither is. Start up to as many as there are partitions, each with
an id of its own, and start one that has ended again under the same id.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import signal
import sys

from kafkaclient import Consumer, KafkaError, Producer
from kafkaclient.errors import TransactionAbortableError

log = logging.getLogger("consume_transform_produce")


def invoice(order: bytes) -> bytes:
    """The work: what is to be written for what was read."""
    known = json.loads(order)
    return json.dumps({"order": known["order"], "total": known["price"] * known["items"]}).encode()


async def bill(bootstrap: str, source: str, target: str, group: str, name: str) -> None:
    # The producer first: when it has started, what an earlier run under this id had left open is
    # aborted. Others of the group wait for transaction.timeout.ms for what nobody comes back to.
    async with (
        Producer(
            bootstrap, transactional_id=f"{group}-{name}", transaction_timeout_ms=10_000
        ) as producer,
        Consumer(
            bootstrap,
            group_id=group,
            topics=[source],
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
        ) as consumer,
    ):
        while True:
            try:
                await bill_batches(consumer, producer, target)
            except TransactionAbortableError as error:
                log.warning("the last batch once more: %s", error)


async def bill_batches(consumer: Consumer, producer: Producer, target: str) -> None:
    """Each batch of orders and its invoices in one transaction. A partition changes hands between
    two transactions; after an error the next call begins with the same batch."""
    async for batch in consumer.batches():
        async with producer.transaction():
            for order in batch:
                await producer.send(target, invoice(order.value), order.key)
            await producer.send_offsets_to_transaction(batch.next_offsets, consumer.group_metadata)


async def until_told(work: asyncio.Task[None]) -> None:
    """SIGTERM and Ctrl-C abort the transaction under way."""
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, work.cancel)
    await asyncio.wait({work})
    if not work.cancelled():
        work.result()


async def main() -> None:
    parser = argparse.ArgumentParser(description="Write an invoice for each order, exactly once.")
    parser.add_argument("bootstrap", help="host:port of one broker or more, comma-separated")
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--group", default="billing")
    parser.add_argument("--id", default="a", help="another one for each process of the group")
    options = parser.parse_args()
    work = bill(options.bootstrap, options.source, options.target, options.group, options.id)
    try:
        await until_told(asyncio.create_task(work))
    except KafkaError as error:  # fenced, refused, or out of reach for too long: start again
        sys.exit(f"ended: {error}")


if __name__ == "__main__":
    asyncio.run(main())
