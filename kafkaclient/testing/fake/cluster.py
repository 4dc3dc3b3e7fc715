"""The fake cluster: brokers in memory, reached through the same seam as real ones."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, TypeVar

from kafkaclient.testing.fake.apis import APIS
from kafkaclient.testing.fake.apis.api_versions import CLOSES_ABOVE, PROFILES
from kafkaclient.testing.fake.broker import FakeBroker
from kafkaclient.testing.fake.connection import FakeConnection
from kafkaclient.testing.fake.control import Control, Controls, Request
from kafkaclient.testing.fake.failures import ProduceFailure
from kafkaclient.testing.fake.log_controls import LogControls
from kafkaclient.testing.fake.pipe import connect
from kafkaclient.testing.fake.state import ClusterState
from kafkaclient.testing.fake.topics import (
    DEFAULT_MAX_MESSAGE_BYTES,
    NO_LEADER,
    FakePartition,
    FakeTopic,
)
from kafkaclient.testing.fake.transaction_controls import TransactionControls

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID

    from kafkaclient.testing.fake.control import Answer
    from kafkaclient.testing.fake.log import FakeRecord
    from kafkaclient.testing.fake.sasl import Sasl
    from kafkaclient.wire.codec import RequestFrame
    from kafkaclient.wire.record_reader import BatchHeader

__all__ = ["FakeCluster"]

P = TypeVar("P", bound=asyncio.BaseProtocol)

_PORT = 9092


class FakeCluster(LogControls, TransactionControls):
    """A Kafka cluster in this process, for tests: no sockets, no threads, no waiting.

    It is a dialer: hand it to a client (``Producer(fake.bootstrap, dialer=fake)``) and every
    connection the client makes is to its brokers, which parse real requests and answer with real
    bytes. Brokers have node ids 0 to ``brokers`` - 1 and the addresses ``fake-0:9092`` and so on.

    ``clock`` gives the times in :attr:`requests` (default: the running loop's); delays use the
    loop's timers, so that on a :class:`~kafkaclient.testing.clock.VirtualTimeLoop` they take no
    real time. ``partitions`` is the number of partitions of topics created without one.
    ``profile`` names a kind of broker (see :data:`~.apis.api_versions.PROFILES`).
    ``transactions_v2`` is the feature level ``transaction.version=2`` (KIP-890); brokers before 4.0
    do not have it. ``sasl``: clients must authenticate.
    """

    def __init__(
        self,
        brokers: int = 3,
        *,
        clock: Callable[[], float] | None = None,
        partitions: int = 6,
        auto_create_topics: bool = True,
        racks: Sequence[str | None] | None = None,
        profile: str = "kafka-4",
        sasl: Sasl | None = None,
        transactions_v2: bool = True,
    ) -> None:
        if racks is not None and len(racks) != brokers:
            raise ValueError(f"{brokers} brokers, but {len(racks)} racks")
        if profile not in PROFILES:
            raise ValueError(f"no profile {profile!r}; there are {', '.join(PROFILES)}")
        self.requests: list[Request] = []
        """Every request that reached a broker, in the order of arrival."""
        self.round_trip_s = 0.0
        """Seconds that a request and its answer travel; half of it each way."""
        self.chunk_size: int | None = None
        """The most bytes delivered at a time on connections made from now on; None: 256 KiB."""
        self._clock = clock
        self._controls = Controls()
        self._connections = 0
        versions = {key: api.VERSIONS for key, api in APIS.items()}
        self._state = ClusterState(
            [
                FakeBroker(node_id, f"fake-{node_id}", _PORT, rack=rack)
                for node_id, rack in enumerate(racks or [None] * brokers)
            ],
            {**versions, **PROFILES[profile]},
            default_partitions=partitions,
            auto_create_topics=auto_create_topics,
            now=self._now,
            sasl=sasl,
        )
        self._state.closes_api_versions_above = CLOSES_ABOVE.get(profile)
        self._state.transactions_v2 = transactions_v2

    def __repr__(self) -> str:
        brokers = ", ".join(
            f"{b.node_id}{'' if b.running else ' stopped'}{' stalled' if b.stalled else ''}"
            for b in self._state.brokers.values()
        )
        return f"<FakeCluster brokers [{brokers}], topics {sorted(self._state.topics)}>"

    @property
    def bootstrap(self) -> str:
        """The brokers' addresses, as ``bootstrap.servers`` takes them."""
        return ",".join(f"{b.host}:{b.port}" for b in self._state.brokers.values())

    # --- the dialer seam ---

    async def dial(
        self, host: str, port: int, factory: Callable[[], P]
    ) -> tuple[asyncio.Transport, P]:
        """Connect to the broker at an address.

        Raises :class:`socket.gaierror` for a host that no broker has, ConnectionRefusedError for
        a wrong port or a stopped broker; waits while the broker swallows dials.
        """
        await asyncio.sleep(self.round_trip_s)
        broker = self._broker_at(host, port)
        while broker.swallows_dials:
            waiter = asyncio.get_running_loop().create_future()
            broker.dials.append(waiter)
            await waiter
            broker = self._broker_at(host, port)
        self._connections += 1
        number = self._connections
        client_side, broker_side = connect(
            (host, port), (f"client-{number}", 0), lambda: self.round_trip_s / 2
        )
        if self.chunk_size is not None:
            client_side.chunk_size = broker_side.chunk_size = self.chunk_size

        def journal(frame: RequestFrame, size: int) -> Request:
            names = self._state.topic_names
            request = Request(broker.node_id, number, self._now(), frame, size, names)
            self.requests.append(request)
            return request

        broker_side.attach(FakeConnection(self._state, broker, self._controls, journal))
        protocol = factory()
        client_side.attach(protocol)
        return client_side, protocol

    def _broker_at(self, host: str, port: int) -> FakeBroker:
        at_host = [b for b in self._state.brokers.values() if b.host == host]
        if not at_host:
            raise socket.gaierror(socket.EAI_NONAME, f"Name or service not known: {host}")
        for broker in at_host:
            if broker.port == port and broker.running:
                return broker
        raise ConnectionRefusedError(f"connection to {host}:{port} refused")

    def _now(self) -> float:
        return self._clock() if self._clock is not None else asyncio.get_running_loop().time()

    # --- topics ---

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        replication_factor: int = 1,
        *,
        assignments: Sequence[Sequence[int]] | None = None,
        max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES,
        min_insync_replicas: int = 1,
    ) -> None:
        """Create a topic; partition n is led by broker n modulo the number of brokers.

        ``assignments`` says it otherwise: per partition its replicas, the leader first.
        """
        if name in self._state.topics:
            raise ValueError(f"topic {name!r} exists")
        self._state.create_topic(
            name,
            partitions,
            replication_factor,
            assignments=assignments,
            max_message_bytes=max_message_bytes,
            min_insync_replicas=min_insync_replicas,
        )

    def delete_topic(self, name: str) -> None:
        """Forget a topic and its records; created again, it gets another topic id."""
        del self._state.topics[self._topic(name).name]

    def topic_id(self, name: str) -> UUID:
        """The id that the topic has had since it was created (KIP-516)."""
        return self._topic(name).topic_id

    def add_partitions(self, name: str, total: int) -> None:
        """Grow a topic to ``total`` partitions."""
        self._state.grow_topic(self._topic(name), total)

    def configure_topic(
        self,
        name: str,
        *,
        max_message_bytes: int | None = None,
        min_insync_replicas: int | None = None,
    ) -> None:
        """Change the settings given; they hold from the next request on."""
        topic = self._topic(name)
        if max_message_bytes is not None:
            topic.max_message_bytes = max_message_bytes
        if min_insync_replicas is not None:
            topic.min_insync_replicas = min_insync_replicas

    def leader(self, topic: str, partition: int) -> int:
        """The node id of a partition's leader; -1 when it has none."""
        return self._partition(topic, partition).leader

    def leader_epoch(self, topic: str, partition: int) -> int:
        """How often the leader has been elected, from 0."""
        return self._partition(topic, partition).leader_epoch

    def move_leader(self, topic: str, partition: int, node_id: int) -> None:
        """Elect a leader under a new epoch (-1: none); it becomes an in-sync replica if it is none.

        Clients learn of it from their next Metadata or, by KIP-951, Produce response.
        """
        moved = self._partition(topic, partition)
        if node_id != NO_LEADER:
            self._broker(node_id)
            for nodes in (moved.replicas, moved.isr):
                if node_id not in nodes:
                    nodes.append(node_id)
        moved.lead(node_id)

    def set_isr(self, topic: str, partition: int, isr: Sequence[int]) -> None:
        """Choose a partition's in-sync replicas; too few of them refuse acks=all."""
        self._partition(topic, partition).isr = list(isr)

    def copy_replica(self, topic: str, partition: int, node_id: int, records: int) -> None:
        """Let a replica that is being added have so many records."""
        self._partition(topic, partition).copied[node_id] = records

    def finish_reassignments(self) -> None:
        """Let every move that is under way come to its end."""
        for topic in self._state.topics.values():
            for moved in topic.partitions:
                moved.arrive()

    def log(self, topic: str, partition: int) -> list[FakeRecord]:
        """The records of a partition, in order."""
        return self._partition(topic, partition).log.records()

    def batches(self, topic: str, partition: int) -> list[BatchHeader]:
        """The headers of the batches of a partition, in order, with their offsets."""
        return [header for header, _ in self._partition(topic, partition).log.batches]

    def forget_producers(self, topic: str, partition: int) -> None:
        """Lose what the log remembers of producers and their sequence numbers."""
        self._partition(topic, partition).log.forget_producers()

    # --- brokers ---

    def stop_broker(self, node_id: int, *, elect: bool = True) -> None:
        """Kill a broker: connections end, dials are refused.

        With ``elect`` its partitions move to another in-sync replica, or have no leader when there
        is none; without, the cluster has not noticed yet, and metadata still names it.
        """
        broker = self._broker(node_id)
        broker.running = False
        for connection in list(broker.connections):
            connection.transport.abort()
        if elect:
            self._state.broker_left(node_id)

    def start_broker(self, node_id: int) -> None:
        """Bring a stopped broker back; it leads again what has no leader."""
        self._broker(node_id).running = True
        self._state.broker_joined(node_id)

    def stall_broker(self, node_id: int, *, swallow_dials: bool = False) -> None:
        """Pause a broker: connections stay open and nothing is read or answered on them.

        New connections are accepted and not answered either, as by the kernel of a paused process;
        with ``swallow_dials`` they are not even accepted, as across a dead network.
        """
        broker = self._broker(node_id)
        broker.stalled = True
        broker.swallows_dials = swallow_dials
        for connection in broker.connections:
            connection.stall()

    def resume_broker(self, node_id: int) -> None:
        """End a stall; what was sent meanwhile is handled."""
        broker = self._broker(node_id)
        broker.stalled = broker.swallows_dials = False
        dials, broker.dials = broker.dials, []
        for dial in dials:
            if not dial.done():
                dial.set_result(None)
        for connection in list(broker.connections):
            connection.resume()

    def drop_connections(self, node_id: int | None = None) -> int:
        """Reset every connection of a broker, or of all; returns how many."""
        connections = [
            connection
            for broker in self._state.brokers.values()
            if node_id in {None, broker.node_id}
            for connection in broker.connections
        ]
        for connection in connections:
            connection.transport.abort()
        return len(connections)

    def connections(self, node_id: int) -> int:
        """How many connections a broker has."""
        return len(self._broker(node_id).connections)

    def set_address(self, node_id: int, host: str, port: int = _PORT) -> None:
        """Move a broker to another address: its connections end, the old address is refused."""
        broker = self._broker(node_id)
        broker.host, broker.port = host, port
        self.drop_connections(node_id)

    # --- behaviour ---

    def control(
        self,
        api_key: int,
        decide: Callable[[Request], Answer] | Answer,
        *,
        keep: bool = False,
        broker: int | None = None,
    ) -> Control:
        """Intercept requests of one API, at one broker or at all.

        ``decide`` is an :data:`~.control.Answer`, or a function from the :class:`Request` to one;
        None leaves the request to the next control, at last to the broker's normal behaviour. A
        control is spent by its first answer that is not None, unless ``keep``.
        """
        control = Control(api_key, decide, keep=keep, broker=broker)
        self._controls.add(control)
        return control

    def fail_produce(
        self,
        topic: str,
        partition: int,
        error_code: int,
        times: int = 1,
        *,
        message: str | None = None,
        record_errors: Sequence[tuple[int, str | None]] = (),
        append: bool = False,
    ) -> None:
        """Fail the next ``times`` batches of a partition; others in the request are not concerned.

        ``record_errors`` are (index in the batch, message) pairs (KIP-467). With ``append`` the
        batch is written all the same, as with NOT_ENOUGH_REPLICAS_AFTER_APPEND.
        """
        failure = ProduceFailure(error_code, message, record_errors, append)
        self._state.produce_failures.add(topic, partition, failure, times)

    def delay_produce(self, node_id: int, seconds: float) -> None:
        """Answer each Produce request of a broker ``seconds`` late, one after the other on each
        connection (KIP-794's slow broker); 0 ends it."""
        self._broker(node_id).produce_delay_s = seconds

    def throttle(self, milliseconds: int, node_id: int | None = None) -> None:
        """Put a throttle time into Produce responses of a broker, or of all; 0 ends it.

        A client must then send nothing on the connection for so long (KIP-219); the fake does not
        enforce it, so that :attr:`requests` shows whether it does.
        """
        for broker in self._state.brokers.values():
            if node_id in {None, broker.node_id}:
                broker.throttle_ms = milliseconds

    def set_versions(self, api_key: int, oldest: int, newest: int) -> None:
        """Offer other versions of an API; the fake plays those its module names."""
        self._state.versions[api_key] = (oldest, newest)

    def requests_of(self, api_key: int, broker: int | None = None) -> list[Request]:
        """The journal of one API, at one broker or at all."""
        return [
            request
            for request in self.requests
            if request.api_key == api_key and broker in {None, request.broker}
        ]

    # --- look-ups ---

    def _broker(self, node_id: int) -> FakeBroker:
        if node_id not in self._state.brokers:
            raise ValueError(f"no broker {node_id}; there are {list(self._state.brokers)}")
        return self._state.brokers[node_id]

    def _topic(self, name: str) -> FakeTopic:
        if name not in self._state.topics:
            raise ValueError(f"no topic {name!r}; there are {sorted(self._state.topics)}")
        return self._state.topics[name]

    def _partition(self, topic: str, partition: int) -> FakePartition:
        known = self._topic(topic).partitions
        if not 0 <= partition < len(known):
            raise ValueError(f"topic {topic!r} has {len(known)} partitions, no {partition}")
        return known[partition]
