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

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition

from kafkaclient import ConsumerGroupMetadata, KafkaError, Producer
from kafkaclient.errors import TransactionAbortableError

log = logging.getLogger("consume_transform_produce")


def invoice(order: bytes) -> bytes:
    """The work: what is to be written for what was read."""
    known = json.loads(order)
    return json.dumps({"order": known["order"], "total": known["price"] * known["items"]}).encode()


class Billing(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
    """One member of the group. Transactions and rebalances take turns: no partition changes hands
    in the middle of a transaction, and none is read from before its offset is certain."""

    def __init__(
        self, consumer: AIOKafkaConsumer, producer: Producer, group: str, target: str
    ) -> None:
        self._consumer = consumer
        self._producer = producer
        self._group = group
        self._target = target
        self._turn = asyncio.Lock()
        self._assigned = asyncio.Event()
        self._astray = True
        """The consumer's positions may not be the committed offsets."""
        self._member = ConsumerGroupMetadata(group)

    async def on_partitions_revoked(self, revoked: object) -> None:
        async with self._turn:  # the transaction under way ends before others get the partitions
            self._assigned.clear()

    async def on_partitions_assigned(self, assigned: object) -> None:
        # By its generation the group refuses our offsets once it has given us up (KIP-447). It has
        # to be that of now, not that of the commit; aiokafka has no public name for it.
        coordinator = self._consumer._coordinator
        self._member = ConsumerGroupMetadata(
            self._group, coordinator.generation, coordinator.member_id
        )
        self._astray = True
        self._assigned.set()

    async def run(self) -> None:
        while True:
            try:
                await self._assigned.wait()
                async with self._turn:
                    if self._assigned.is_set():
                        await self._step()
            except TransactionAbortableError as error:
                log.warning("once more, from the last committed offsets: %s", error)

    async def _step(self) -> None:
        """Read some orders, and write their invoices, in one transaction."""
        if self._astray:
            await self._seek()
            self._astray = False
        orders = await self._consumer.getmany(timeout_ms=500, max_records=500)
        if not orders:
            return
        self._astray = True
        async with self._producer.transaction():
            for records in orders.values():
                for record in records:
                    await self._producer.send(self._target, invoice(record.value), record.key)
            read = {partition: records[-1].offset + 1 for partition, records in orders.items()}
            await self._producer.send_offsets_to_transaction(read, self._member)
        self._astray = False

    async def _seek(self) -> None:
        """Go to the committed offsets, as the producer tells them: it waits until no transaction is
        about to change them. aiokafka's consumer takes what is there, and so reads twice what a
        member that has just been lost had read."""
        partitions = self._consumer.assignment()
        for known, committed in (await self._producer.committed(self._group, partitions)).items():
            partition = TopicPartition(*known)
            if committed is None:
                await self._consumer.seek_to_beginning(partition)
            else:
                self._consumer.seek(partition, committed.offset)


async def bill(bootstrap: str, source: str, target: str, group: str, name: str) -> None:
    # The producer first: when it has started, what an earlier run under this id had left open is
    # aborted. Others of the group wait for transaction.timeout.ms for what nobody comes back to.
    async with Producer(
        bootstrap, transactional_id=f"{group}-{name}", transaction_timeout_ms=10_000
    ) as producer:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            enable_auto_commit=False,
            isolation_level="read_committed",
        )
        billing = Billing(consumer, producer, group, target)
        consumer.subscribe([source], listener=billing)
        await consumer.start()
        try:
            await billing.run()
        finally:
            await consumer.stop()


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
