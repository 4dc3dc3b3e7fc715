"""The ledger: a topic that stores a query's decisions."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from kafkaclient.admin import ConfigResource, TxnState
from kafkaclient.errors import (
    KafkaError,
    TopicExistsError,
    UnknownTopicError,
)
from kafkaclient.producer.producer import Producer
from kafkaclient.reader import Reader
from kafkaclient.spark.decisions import Decision, _log
from kafkaclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from kafkaclient.admin import Admin
    from kafkaclient.net.dialer import Dialer


_CONFIGS = {
    "cleanup.policy": "compact",
    "segment.bytes": str(2**20),  # small segments, so that compaction leaves little to read
    "min.cleanable.dirty.ratio": "0.1",
    "unclean.leader.election.enable": "false",
}
_REPLICAS = 3  # as __transaction_state
_INVALID_REPLICATION_FACTOR = 38

_SLICE_BYTES = 32 * 1024  # of a decision per record, far below the usual max.message.bytes

_BEING_WRITTEN = (
    TxnState.ONGOING,
    TxnState.PREPARE_COMMIT,
    TxnState.PREPARE_ABORT,
    TxnState.PREPARE_EPOCH_FENCE,
)
_STOP_TIMEOUT_S = 5.0  # for stopping the ledger's producer

_checked: set[str] = set()  # ledgers that were created or checked: a process warns once


async def make_ledger(
    admin: Admin, topic: str, *, replicas: int | None, min_insync: int | None
) -> None:
    """Create the ledger's topic unless it exists.

    ``replicas`` None: 3, or fewer with a warning if the cluster has fewer brokers, but at least
    ``min_insync``. ``min_insync`` None: 2 with at least 3 replicas, else 1. Raises the controller's
    BrokerError if the cluster has too few brokers for these numbers; AuthorizationError.
    """
    with suppress(UnknownTopicError):
        existing = (await admin.describe_topic(topic)).replication_factor
        if topic not in _checked:
            await _check_existing(admin, topic, existing, replicas or _REPLICAS)
            _checked.add(topic)
        return
    least = replicas or min_insync or 1
    most = replicas or max(least, _REPLICAS)
    for factor in range(most, least - 1, -1):
        insync = min_insync or (2 if factor > 2 else 1)
        configs = _CONFIGS | {"min.insync.replicas": str(insync)}
        try:
            with suppress(TopicExistsError):  # created by a run that is ending
                await admin.create_topic(topic, 1, factor, configs=configs)
        except KafkaError as error:
            if error.code != _INVALID_REPLICATION_FACTOR or factor == least:
                raise
        else:
            break
    _checked.add(topic)
    if replicas is None and factor < _REPLICAS:
        _log.warning(
            "the ledger %s has only %d of %d replicas: the cluster has too few brokers. If "
            "decisions are lost with their brokers, batches may be duplicated or lost",
            topic,
            factor,
            _REPLICAS,
        )


async def _check_existing(admin: Admin, topic: str, replicas: int, wanted: int) -> None:
    """Warn if the ledger may lose decisions."""
    if replicas < wanted:
        _log.warning(
            "the ledger %s has %d replicas, not %d (ledgerReplicationFactor): it already existed",
            topic,
            replicas,
            wanted,
        )
    with suppress(KafkaError):  # the permission DescribeConfigs is needed for this warning only
        found = await admin.describe_configs(ConfigResource.topic(topic), ["cleanup.policy"])
        if (policy := found["cleanup.policy"].value) != "compact":
            _log.warning(
                "the ledger %s has cleanup.policy=%s: when a decision is deleted, a repeated batch "
                "is written twice. Set cleanup.policy=compact",
                topic,
                policy,
            )


class KafkaLedger:
    """A :class:`~kafkaclient.spark.commit.Ledger`: one topic. :meth:`claim` starts a
    producer with the topic's name as transactional id, so that earlier runs are fenced. Other
    methods start no producer."""

    def __init__(
        self,
        admin: Admin,
        options: Mapping[str, object],
        topic: str,
        *,
        dialer: Dialer | None = None,
    ) -> None:
        self._admin = admin
        self._options = dict(options)
        self._dialer = dialer
        self._topic = topic
        self._producer: Producer | None = None

    async def close(self) -> None:
        """Stop the producer. A KafkaError is only logged: the decisions are already written."""
        producer, self._producer = self._producer, None
        if producer is not None:
            try:
                await producer.stop(timeout=_STOP_TIMEOUT_S)
            except KafkaError as error:
                _log.warning("the producer of ledger %s did not stop: %s", self._topic, error)

    async def last(self) -> Decision | None:
        return await self._read()

    async def _read(self, claimed_at: int = 0) -> Decision | None:
        """The last decision; also if the log seems to end before the offset ``claimed_at``, which a
        broker has acknowledged."""
        tp = TopicPartition(self._topic, 0)
        committed = self._options | {"isolation_level": "read_committed"}
        async with Reader(committed, dialer=self._dialer) as reader:
            first = await reader.offsets(self._topic, at="earliest")
            end = await reader.offsets(self._topic, at="latest")
            batches = reader.read({tp: (first[tp], max(end[tp], claimed_at))})
            values = [record.value async for batch in batches for record in batch]
        last = deque(_join_slices(value for value in values if value is not None), maxlen=1)
        return last[0] if last else None

    async def is_writing(self) -> bool:
        """Whether the ledger's transaction is open or being committed or aborted."""
        found = (await self._admin.describe_transactions([self._topic]))[self._topic]
        return found is not None and found.state in _BEING_WRITTEN

    async def claim(self) -> Decision | None:
        await self.close()
        # Before reading: this fences earlier producers and ends their transactions.
        producer = Producer(self._options | {"transactional_id": self._topic}, dialer=self._dialer)
        self._producer = producer
        await producer.start()
        # A broker that was paused may take itself for the leader, and answer that the log ends
        # before the last decision. It cannot have acknowledged this record.
        async with producer.transaction():
            claim = f"{self._topic}/claim".encode()
            acknowledged = await producer.send_and_wait(self._topic, None, claim, partition=0)
        return await self._read(acknowledged.offset)

    async def write(self, decision: Decision) -> None:
        """Write the decision atomically, in one transaction."""
        assert self._producer is not None, "call claim() first"
        async with self._producer.transaction():
            for number, value in enumerate(_slices(decision)):
                # Compaction keeps the last record of each key, and so the last decision.
                key = f"{self._topic}/{number}" if number else self._topic
                await self._producer.send(self._topic, value, key.encode(), partition=0)


def _slices(decision: Decision) -> Iterator[bytes]:
    """Records of the form ``number/count\\n``, followed by a part of the JSON text."""
    text = decision.to_json()
    starts = range(0, len(text), _SLICE_BYTES)
    for number, start in enumerate(starts):
        yield b"%d/%d\n" % (number, len(starts)) + text[start : start + _SLICE_BYTES]


def _join_slices(values: Iterable[bytes]) -> Iterator[Decision]:
    """The decisions in the records. Compaction may have removed the first slices of an older
    decision, so slices that do not follow a slice 0 are ignored."""
    parts: list[bytes] = []
    for value in values:
        head, _, part = value.partition(b"\n")
        number, count = map(int, head.split(b"/"))
        if number == 0:
            parts = []
        if number == len(parts):
            parts.append(part)
            if len(parts) == count:
                yield Decision.from_json(b"".join(parts))
