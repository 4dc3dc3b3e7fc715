"""Other Kafka clients for Python behind the load loop's protocol: ``perf-test --producer``.

They get the guarantees and the linger that are the defaults of Java's producer and of this package
(acks=all, idempotence, 5 ms), and keep their own batch sizes and buffers. Options have Kafka's
dotted names.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, deque
from functools import partial
from importlib import import_module
from threading import Thread
from time import perf_counter
from typing import TYPE_CHECKING, Any

from kafkaclient.errors import BootstrapError, ConfigError, KafkaError
from kafkaclient.perf.traffic import BrokerTraffic, PartitionTraffic, Traffic, skew_of, unheard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kafkaclient.perf.clients import MakeClient
    from kafkaclient.perf.traffic import Completed, KeyValue

_LEVEL = {"acks": "all", "enable.idempotence": "true", "linger.ms": "5"}

_AIOKAFKA_OPTIONS = {
    "bootstrap.servers": "bootstrap_servers",
    "client.id": "client_id",
    "acks": "acks",
    "enable.idempotence": "enable_idempotence",
    "linger.ms": "linger_ms",
    "batch.size": "max_batch_size",
    "max.request.size": "max_request_size",
    "compression.type": "compression_type",
    "request.timeout.ms": "request_timeout_ms",
    "retry.backoff.ms": "retry_backoff_ms",
    "metadata.max.age.ms": "metadata_max_age_ms",
    "connections.max.idle.ms": "connections_max_idle_ms",
    "transactional.id": "transactional_id",
    "transaction.timeout.ms": "transaction_timeout_ms",
}
_CONFLUENT_NAMES = {"max.request.size": "message.max.bytes"}

_CRITICAL = 2  # syslog's level: at lower ones librdkafka writes about connections to stderr
_CONNECT_TIMEOUT_S = 10.0
_STATISTICS_MS = 200
_DRAIN_EVERY_S = 0.005
_ASK_EVERY_S = 0.001
_MOST_ANSWERS = 32  # answers that are counted at the time of the first of them


class AiokafkaClient:
    """aiokafka's ``AIOKafkaProducer``."""

    name = "aiokafka"

    def __init__(self, config: Mapping[str, str], topic: str) -> None:
        self._module = import_peer("aiokafka")
        self._topic = topic
        self._options = aiokafka_options(config)
        self._requests: Counter[int] = Counter()
        self._records: Counter[int] = Counter()
        self._bytes: Counter[int] = Counter()
        self._producer: Any = None
        self._completed: Completed = unheard

    async def start(self, completed: Completed) -> None:
        self._completed = completed
        self._producer = self._module.AIOKafkaProducer(**self._options)
        self._count_requests(self._producer.client)
        try:
            await self._producer.start()
        except self._module.errors.KafkaError as error:
            raise BootstrapError(f"aiokafka: {error}") from error

    async def send(self, records: list[KeyValue], started: float) -> int:
        # send() may wait for metadata and for buffer space, before any record.
        send, topic = self._producer.send, self._topic
        for key, value in records:
            nbytes, started = len(value) + len(key or b""), perf_counter()
            try:
                future = await send(topic, value, key=key)
            except self._module.errors.KafkaError as error:
                self._completed(started, perf_counter(), 1, 0, error)
            else:
                future.add_done_callback(partial(self._answered, started, nbytes))
        return len(records)

    async def begin_transaction(self) -> None:
        await self._producer.begin_transaction()

    async def commit_transaction(self) -> None:
        try:
            await self._producer.commit_transaction()
        except self._module.errors.KafkaError as error:
            raise KafkaError(f"aiokafka: {error}") from error

    async def flush(self) -> None:
        await self._producer.flush()
        await asyncio.sleep(0)  # the futures' callbacks run in the event loop's next iteration

    async def stop(self, timeout: float | None = None) -> None:
        if self._producer is not None:
            await asyncio.wait_for(self._producer.stop(), timeout)

    def traffic(self) -> Traffic | None:
        if self._producer is None:
            return None
        cluster = self._producer.client.cluster
        leader_of, partition_of = cluster.leader_for_partition, self._module.TopicPartition
        partitions = tuple(
            PartitionTraffic(
                number,
                leader_of(partition_of(self._topic, number)),
                self._records[number],
                self._bytes[number],
            )
            for number in sorted(cluster.partitions_for_topic(self._topic) or ())
        )
        sent: Counter[int] = Counter()
        for partition in partitions:
            sent[partition.leader] += partition.bytes_sent
        return Traffic(
            brokers=tuple(
                BrokerTraffic(broker.nodeId, sent[broker.nodeId], self._requests[broker.nodeId])
                for broker in sorted(cluster.brokers(), key=lambda broker: broker.nodeId)
            ),
            partitions=partitions,
            skew=skew_of(partitions),
        )

    def metrics(self) -> None:
        return None

    def _answered(self, started: float, nbytes: int, future: asyncio.Future[Any]) -> None:
        error = future.exception()
        if error is None:
            partition = future.result().partition
            self._records[partition] += 1
            self._bytes[partition] += nbytes
        self._completed(started, perf_counter(), 1, nbytes, error)

    def _count_requests(self, client: Any) -> None:
        # aiokafka has no counters; every request goes through this method of its client.
        send = client.send

        async def counted(node_id: int, request: Any, **options: Any) -> Any:
            if type(request).__name__.startswith("ProduceRequest"):
                self._requests[node_id] += 1
            return await send(node_id, request, **options)

        client.send = counted


class _Answers:
    """Answers of single records, which another thread adds and publishes.

    Answers to records that were handed over together are added up: the load's thread would
    otherwise need as long for them as the client.
    """

    def __init__(self) -> None:
        self._published: deque[tuple[float, float, int, int, BaseException | None]] = deque()
        self._started = self._finished = 0.0
        self._count = self._nbytes = 0

    @property
    def all_published(self) -> bool:
        return not self._count

    def add(self, started: float, nbytes: int, error: BaseException | None) -> None:
        if error is not None:
            self._published.append((started, perf_counter(), 1, nbytes, error))
            return
        if started != self._started or self._count >= _MOST_ANSWERS:
            self.publish()
            self._started, self._finished = started, perf_counter()
        self._count += 1
        self._nbytes += nbytes

    def publish(self) -> None:
        """Publish what was added. Only the thread that adds may call it."""
        if self._count:
            self._published.append((self._started, self._finished, self._count, self._nbytes, None))
            self._count = self._nbytes = 0
            self._started = 0.0

    def published(self) -> Iterator[tuple[float, float, int, int, BaseException | None]]:
        """Take out what is published."""
        while self._published:
            yield self._published.popleft()


class ConfluentClient:
    """confluent-kafka's ``Producer``, which is librdkafka with its threads.

    A thread polls for deliveries, so that a latency ends when librdkafka reports the delivery, not
    at the event loop's next iteration.
    """

    name = "confluent"

    def __init__(self, config: Mapping[str, str], topic: str) -> None:
        self._module = import_peer("confluent_kafka")
        self._topic = topic
        self._options: dict[str, Any] = {
            **_LEVEL,
            "log_level": _CRITICAL,
            **{_CONFLUENT_NAMES.get(name, name): value for name, value in config.items()},
            "statistics.interval.ms": _STATISTICS_MS,
            "stats_cb": self._statistics_ready,
            "error_cb": lambda _error: None,  # deliveries have the errors that count
        }
        self._answers = _Answers()
        self._statistics: dict[str, Any] = {}
        self._statistics_count = 0
        self._producer: Any = None
        self._poller: Thread | None = None
        self._drainer: asyncio.Task[None] | None = None
        self._stopping = False
        self._completed: Completed = unheard

    async def start(self, completed: Completed) -> None:
        self._completed = completed
        try:
            self._producer = self._module.Producer(self._options)
        except self._module.KafkaException as error:
            raise ConfigError(f"confluent: {error.args[0].str()}") from error
        self._poller = Thread(target=self._poll, name="confluent-poll", daemon=True)
        self._poller.start()
        self._drainer = asyncio.create_task(self._drain_regularly())
        try:
            await asyncio.to_thread(self._producer.list_topics, timeout=_CONNECT_TIMEOUT_S)
            if "transactional.id" in self._options:
                await asyncio.to_thread(self._producer.init_transactions)
        except self._module.KafkaException as error:
            raise BootstrapError(
                f"confluent: no broker of {self._options.get('bootstrap.servers')} answered within "
                f"{_CONNECT_TIMEOUT_S:.0f} s: {error.args[0].str()}"
            ) from error

    async def send(self, records: list[KeyValue], started: float) -> int:
        taken = self._produce(records, started)
        if not taken:
            await _until(lambda: self._produce(records[:1], started) == 1)
        return taken or 1

    def _produce(self, records: list[KeyValue], started: float) -> int:
        """Hand over records until the queue is full; returns how many were taken."""
        produce, topic = self._producer.produce, self._topic
        answered, taken = partial(self._answered, started), 0
        for key, value in records:
            try:
                produce(topic, value, key, on_delivery=answered)
            except BufferError:
                break
            except self._module.KafkaException as error:
                self._completed(started, perf_counter(), 1, 0, error)
            taken += 1
        return taken

    async def begin_transaction(self) -> None:
        self._producer.begin_transaction()

    async def commit_transaction(self) -> None:
        try:
            await asyncio.to_thread(self._producer.commit_transaction)
        except self._module.KafkaException as error:
            raise KafkaError(f"confluent: {error.args[0].str()}") from error

    async def flush(self) -> None:
        await _until(lambda: not len(self._producer))
        await _until(lambda: self._answers.all_published)
        self._drain()

    async def stop(self, timeout: float | None = None) -> None:
        if self._drainer is not None:
            # The second set of statistics from now is the first that covers the whole run.
            enough = self._statistics_count + 2
            await _until(lambda: self._statistics_count >= enough)
            self._drainer.cancel()
        self._stopping = True
        if self._poller is not None:
            await asyncio.to_thread(self._poller.join)
        if self._producer is not None:
            self._producer.purge()
            self._producer.poll(0)

    def traffic(self) -> Traffic | None:
        if not self._statistics:
            return None
        topic = self._statistics.get("topics", {}).get(self._topic, {})
        partitions = tuple(
            PartitionTraffic(part["partition"], part["leader"], part["txmsgs"], part["txbytes"])
            for part in topic.get("partitions", {}).values()
            if part["partition"] >= 0
        )
        brokers = (
            BrokerTraffic(
                *(broker["nodeid"], broker["txbytes"], broker["req"].get("Produce", 0)),
                in_flight_requests=broker["waitresp_cnt"],
            )
            for broker in self._statistics["brokers"].values()
            if broker["nodeid"] >= 0
        )
        return Traffic(
            brokers=tuple(sorted(brokers, key=lambda broker: broker.node_id)),
            partitions=tuple(sorted(partitions, key=lambda partition: partition.partition)),
            skew=skew_of(partitions),
        )

    def metrics(self) -> None:
        return None

    def _poll(self) -> None:
        while not self._stopping:
            self._producer.poll(0.05)
            self._answers.publish()

    def _answered(self, started: float, error: Any, message: Any) -> None:
        nbytes = len(message) + len(message.key() or b"")
        raised = None if error is None else self._module.KafkaException(error)
        self._answers.add(started, nbytes, raised)

    def _statistics_ready(self, text: str) -> None:
        self._statistics = json.loads(text)
        self._statistics_count += 1

    async def _drain_regularly(self) -> None:
        while True:
            self._drain()
            await asyncio.sleep(_DRAIN_EVERY_S)

    def _drain(self) -> None:
        for answer in self._answers.published():
            self._completed(*answer)


async def _until(condition: Callable[[], bool]) -> None:
    # librdkafka notifies its own threads, not an event loop.
    while not condition():
        await asyncio.sleep(_ASK_EVERY_S)


def import_peer(name: str) -> Any:
    """A peer's module. Raises ConfigError, naming what to install, if it is missing."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{name.replace('_', '-')} is not installed: pip install 'kafkaclient[bench]'"
        ) from error


def aiokafka_options(config: Mapping[str, str]) -> dict[str, Any]:
    """aiokafka's keyword arguments for options by Kafka's names, with our guarantees."""
    options: dict[str, Any] = {}
    for name, value in {**_LEVEL, **config}.items():
        if name not in _AIOKAFKA_OPTIONS:
            raise ConfigError(
                f"{name}: aiokafka has no such option; it takes {', '.join(_AIOKAFKA_OPTIONS)}"
            )
        options[_AIOKAFKA_OPTIONS[name]] = _aiokafka_value(name, value)
    return options


def _aiokafka_value(name: str, value: str) -> Any:
    if name in {"bootstrap.servers", "client.id", "transactional.id"}:
        return value
    if name == "compression.type":
        return None if value == "none" else value
    if name == "enable.idempotence":
        return value.lower() == "true"
    if value.removeprefix("-").isdigit():
        return int(value)
    if name == "acks" and value == "all":
        return value
    raise ConfigError(f"{name}={value}: not a whole number")


PEERS: Mapping[str, MakeClient] = {"aiokafka": AiokafkaClient, "confluent": ConfluentClient}
