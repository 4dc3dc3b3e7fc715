"""What the driver of an exactly-once write keeps in Kafka: decisions, and the tasks' transactions.

Spark marks a batch as committed after the sink's commit has returned. A batch that Spark has not
marked is repeated, perhaps with other tasks and partitions. So the driver writes one durable
decision before anything of the batch becomes visible: the set of transactions to commit. The
ledger is the topic with a query's decisions.

A repeated batch reads the same source offsets. If the checkpoint was restored or copied, a batch
with the same number may have other rows. The decision stores its :class:`Contents`, so that this is
detected as an error.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import time
from collections import deque
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from kafkaclient.admin import ConfigResource, TxnState
from kafkaclient.errors import (
    KafkaError,
    TopicExistsError,
    TransactionLostError,
    UnknownTopicError,
)
from kafkaclient.producer.producer import Producer
from kafkaclient.reader import Reader
from kafkaclient.types import PreparedTransaction, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from kafkaclient.admin import Admin
    from kafkaclient.net.dialer import Dialer
    from kafkaclient.wire.transactions import TransactionDescription

_log = logging.getLogger(__name__)


# --- Decisions, and the ledger that stores them ---------------------------------------------------

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


@dataclass(frozen=True, slots=True)
class Contents:
    """Distinguishes a repeated batch from another batch with the same number."""

    rows: int
    checksum: int
    """Equal for equal rows, regardless of their order and of the number of tasks."""
    target: str | None
    """The topic of all rows. None: each row names its topic."""
    end_offsets: str | None = None
    """The batch's end offsets in its sources, from Spark's checkpoint. None: not readable."""

    def difference(self, now: Contents) -> str | None:
        """How the batch of ``now`` differs from the decided one. None if it is the same batch. If
        both have end offsets, only these are compared: a nondeterministic query (``rand()``) may
        yield other rows for the same input, and committing the decided rows loses no input."""
        if self.target != now.target:
            before, after = (
                "the topics that rows name" if target is None else f"topic {target}"
                for target in (self.target, now.target)
            )
            return f"it was decided for {before} and is for {after} now"
        if self.end_offsets is not None and now.end_offsets is not None:
            same = self.end_offsets == now.end_offsets
            return None if same else f"its source's end offsets are {now.end_offsets} now"
        if (self.rows, self.checksum) == (now.rows, now.checksum):
            return None
        return (
            f"it was decided with {self.rows} rows (checksum {self.checksum:x}) and has {now.rows} "
            f"rows (checksum {now.checksum:x}) now"
        )


@dataclass(frozen=True, slots=True)
class Decision:
    """Exactly these transactions make up batch ``batch``. ``done``: all are committed."""

    batch: int
    transactions: tuple[PreparedTransaction, ...]
    done: bool = False
    contents: Contents | None = None
    """None: repetitions are not checked."""

    def to_json(self) -> bytes:
        names = [each.transactional_id for each in self.transactions]
        prefix = os.path.commonprefix(names)  # noqa: RUF071 - not paths
        fields = {
            "batch": self.batch,
            "done": self.done,
            "contents": self.contents and asdict(self.contents),
            "prefix": prefix,
            "transactions": [
                (name[len(prefix) :], *each[1:])
                for name, each in zip(names, self.transactions, strict=True)
            ],
        }
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, text: bytes) -> Decision:
        """Decode :meth:`to_json`."""
        read = json.loads(text)
        prefix = read["prefix"]
        transactions = tuple(
            PreparedTransaction(prefix + name, *rest) for name, *rest in read["transactions"]
        )
        contents = Contents(**read["contents"]) if read["contents"] else None
        return cls(read["batch"], transactions, read["done"], contents)


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
    """Durable storage of one query's decisions: a topic. :meth:`claim` starts a producer with the
    topic's name as transactional id, so that earlier runs are fenced. Other methods start no
    producer."""

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

    async def last(self, claimed_at: int = 0) -> Decision | None:
        """The last decision; also if the log seems to end before the offset ``claimed_at``, which a
        broker has acknowledged. Does not fence other runs."""
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
        """Whether any run is writing a decision that :meth:`last` does not return yet: the ledger's
        transaction is open, or being committed or aborted."""
        found = (await self._admin.describe_transactions([self._topic]))[self._topic]
        return found is not None and found.state in _BEING_WRITTEN

    async def claim(self) -> Decision | None:
        """Fence earlier runs, so that they can no longer write, and return the last decision."""
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
        return await self.last(acknowledged.offset)

    async def write(self, decision: Decision) -> None:
        """Write the decision atomically, in one transaction, after :meth:`claim`. It is durable on
        return, perhaps also after an error."""
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


# --- The transactions of the tasks ----------------------------------------------------------------

_MAX_REQUESTS = 200  # in flight; with thousands, responses would time out


class State(Enum):
    """The state of a transaction. Its transactional id is used only once."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown to its coordinator"
    """It may have been committed."""


class PreparedStatus(NamedTuple):
    """A transaction's status, from its coordinator."""

    state: State
    time_left: float = 0.0
    """Remaining fraction of the timeout while the transaction is open, 0 to 1."""


_STATES = {
    TxnState.ONGOING: State.OPEN,
    TxnState.PREPARE_COMMIT: State.COMMITTED,
    TxnState.COMPLETE_COMMIT: State.COMMITTED,
    TxnState.PREPARE_ABORT: State.ABORTED,
    TxnState.PREPARE_EPOCH_FENCE: State.ABORTED,
    TxnState.COMPLETE_ABORT: State.ABORTED,
}  # State.UNKNOWN: EMPTY, DEAD and UNKNOWN, which do not tell how the transaction ended


class KafkaTransactions:
    """The transactions with the ids ``{query_name}-{batch}-{hex}``. ``clock`` is the wall clock in
    seconds: a transaction's start is in wall clock time."""

    def __init__(
        self, admin: Admin, query_name: str, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._admin = admin
        self._clock = clock
        self._request_slots = asyncio.Semaphore(_MAX_REQUESTS)
        self._query_name = query_name

    async def states(
        self, prepared: Sequence[PreparedTransaction]
    ) -> dict[PreparedTransaction, PreparedStatus]:
        """The states, from the transactions' coordinators."""
        described = await self._describe([each.transactional_id for each in prepared])
        # If this machine's clock is behind, the latest start time serves as the current time.
        begun = [each.started_ms for each in described.values() if each is not None]
        now_ms = max([self._clock() * 1000, *begun])
        return {each: _status(each, described[each.transactional_id], now_ms) for each in prepared}

    async def end(self, prepared: PreparedTransaction, *, commit: bool) -> bool:
        """Commit or abort the transaction. Returns whether it has ended in this way, now or
        earlier; perhaps False after aborting a timed-out one."""
        async with self._request_slots:
            try:
                await self._admin.end_transaction(prepared, commit=commit)
            except TransactionLostError:
                return False
        return True

    async def _describe(self, names: Sequence[str]) -> dict[str, TransactionDescription | None]:
        async def describe(name: str) -> dict[str, TransactionDescription | None]:
            async with self._request_slots:
                return await self._admin.describe_transactions([name])

        described = await asyncio.gather(*map(describe, names))
        return {name: found for each in described for name, found in each.items()}

    async def open_up_to(self, batch: int) -> list[PreparedTransaction]:
        """The open transactions of all batches up to this one."""
        name = re.compile(re.escape(self._query_name) + r"-(\d+)-[0-9a-f]{32}")
        prefix = f"{self._query_name}-"
        listed = await self._admin.list_transactions(prefix, states=[TxnState.ONGOING])
        found = [name.fullmatch(each.transactional_id) for each in listed]
        old = [match[0] for match in found if match and int(match[1]) <= batch]
        described = await self._describe(old)
        return [
            PreparedTransaction(transactional_id, now.producer_id, now.producer_epoch)
            for transactional_id, now in described.items()
            if now is not None and now.state is TxnState.ONGOING
        ]


def _status(
    prepared: PreparedTransaction, found: TransactionDescription | None, now_ms: float
) -> PreparedStatus:
    if found is None or found.producer_id != prepared.producer_id:
        return PreparedStatus(State.UNKNOWN)
    state = _STATES.get(found.state, State.UNKNOWN)
    if state is not State.OPEN:
        return PreparedStatus(state)
    return PreparedStatus(state, max(0.0, 1 - (now_ms - found.started_ms) / found.timeout_ms))
