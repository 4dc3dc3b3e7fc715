"""The fake cluster: brokers in memory, to which clients connect through a dialer or over TCP, and
the failures that a test orders (``fail_produce``)."""

from __future__ import annotations

import asyncio
import socket
from functools import partial
from typing import TYPE_CHECKING, Self, TypeVar

from kafkaclient.testing.fake.apis import APIS, client_metrics
from kafkaclient.testing.fake.apis.metadata import CLOSES_ABOVE, PROFILES
from kafkaclient.testing.fake.connection import FakeConnection
from kafkaclient.testing.fake.contents import ClusterContents
from kafkaclient.testing.fake.interceptors import Control, Request
from kafkaclient.testing.fake.log import ScriptedError
from kafkaclient.testing.fake.pipe import HOST, Listener, connect
from kafkaclient.testing.fake.serving import Serving, ServingThread, runs_in_its_thread
from kafkaclient.testing.fake.state import ClientMetrics, ClusterState, FakeBroker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkaclient.testing.fake.interceptors import Answer
    from kafkaclient.testing.fake.serving import Sasl
    from kafkaclient.wire.codec import RequestFrame

P = TypeVar("P", bound=asyncio.BaseProtocol)

_PORT = 9092


@runs_in_its_thread
class FakeCluster(ClusterContents):
    """A Kafka cluster in this process for tests, without sockets, threads and waiting.

    The cluster is a dialer: ``Producer(fake.bootstrap, dialer=fake)`` connects to its brokers,
    which parse real requests and answer with real bytes. Brokers have the node ids 0 to ``brokers``
    - 1 and the addresses ``fake-0:9092``, ``fake-1:9092``, ...

    ``clock`` gives the times in :attr:`requests` (default: the running loop's time). Delays use the
    loop's timers, so they take no real time on a
    :class:`~kafkaclient.testing.clock.VirtualTimeLoop`.

    :meth:`serve` serves the brokers on TCP ports of 127.0.0.1, for clients in other processes and
    languages. Brokers offer in ApiVersions what ``testing/fake/apis`` implements, and close the
    connection at any other request, as Kafka's brokers do.

    Brokers answer with errors or late if a test says so::

        fake.fail_produce("orders", 0, ErrorCode.NOT_ENOUGH_REPLICAS)  # the next batch of orders-0
        fake.control(ApiKey.PRODUCE, ErrorCode.NOT_LEADER_OR_FOLLOWER)  # the next whole request
        fake.control(ApiKey.PRODUCE, delay_answer(2.0), broker=1)  # one answer, 2 s late
        fake.delay_produce(1, 0.02)  # all answers of broker 1, one after the other

    ``partitions`` is the default number of partitions of a topic. ``profile`` names a kind of
    broker (see :data:`~.apis.metadata.PROFILES`). ``transactions_v2`` is the feature level
    ``transaction.version=2`` (KIP-890), which brokers before 4.0 do not have. With ``sasl`` clients
    must authenticate."""

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
        if racks is not None and (isinstance(racks, str) or len(racks) != brokers):
            raise ValueError(f"{brokers} brokers, but {len(racks)} racks")
        if profile not in PROFILES:
            raise ValueError(f"unknown profile {profile!r}; the profiles are {', '.join(PROFILES)}")
        self.requests: list[Request] = []
        """Every request that a broker received, in the order of arrival."""
        self.round_trip_s: float = 0.0
        """The network round-trip time in seconds, half of it in each direction; not over TCP."""
        self.chunk_size: int | None = None
        """The maximum bytes per delivery on new connections; None: 256 KiB. Not over TCP."""
        self._clock = clock
        self._connections = 0
        self._subscriptions = 0
        self._listeners: dict[int, Listener] = {}
        self._thread: ServingThread | None = None
        versions = {
            key: api.versions for key, api in APIS.items() if api not in client_metrics.APIS
        }
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
            transactions_v2=transactions_v2,
            closes_api_versions_above=CLOSES_ABOVE.get(profile),
        )

    def __repr__(self) -> str:
        brokers = ", ".join(
            f"{b.node_id}{'' if b.running else ' stopped'}{' stalled' if b.stalled else ''}"
            for b in self._state.brokers.values()
        )
        return f"<FakeCluster brokers [{brokers}], topics {sorted(self._state.topics)}>"

    @property
    def bootstrap(self) -> str:
        """The brokers' addresses for ``bootstrap.servers``."""
        return ",".join(f"{b.host}:{b.port}" for b in self._state.brokers.values())

    def serve(self) -> Serving[Self]:
        """Serve the brokers on free TCP ports of 127.0.0.1 in an ``async with`` or ``with`` block::

            async with FakeCluster().serve() as fake:  # in the running event loop
                ...  # any client connects to fake.bootstrap
            with FakeCluster().serve() as fake:  # in an event loop on a thread of its own
                ...

        With ``with`` the methods of the cluster may be called in any thread, and clients connect
        over TCP only. A stopped broker refuses connections, and has the same port when it is
        started again. For a broker that swallows dials the kernel accepts the connections; nothing
        answers on them. At the end of the block all connections are reset, and the brokers have
        their addresses in memory again; topics, records and :attr:`requests` stay.

        Entering raises OSError if there is no free port, and ValueError if the cluster is being
        served."""
        return Serving(self)

    def _open_ports(self) -> None:
        if self._listeners:
            raise ValueError("the cluster is being served already")
        for broker in self._state.brokers.values():
            listener = Listener(partial(self._new_connection, broker))
            self._listeners[broker.node_id] = listener
            broker.host, broker.port = HOST, listener.port
        for broker in self._state.brokers.values():
            if broker.running:
                self._listeners[broker.node_id].open()

    async def _close_ports(self) -> None:
        """Return when the sockets of all connections are closed."""
        listeners = list(self._listeners.items())
        self._listeners.clear()
        for node_id, listener in listeners:
            await listener.end()
            self._state.brokers[node_id].host = f"fake-{node_id}"
            self._state.brokers[node_id].port = _PORT
        self.drop_connections()
        self._state.groups.forget_members()
        self._state.consumer_groups.forget_members()
        while any(b.connections for b in self._state.brokers.values()):  # noqa: ASYNC110 - a pass or two
            await asyncio.sleep(0)

    async def dial(
        self, host: str, port: int, factory: Callable[[], P]
    ) -> tuple[asyncio.Transport, P]:
        """Connect to the broker at this address. Waits while the broker swallows dials.

        Raises :class:`socket.gaierror` for an unknown host, and ConnectionRefusedError for a wrong
        port or a stopped broker.
        """
        if self._thread is not None:
            raise RuntimeError("the cluster is served by a thread: connect without dialer=")
        await asyncio.sleep(self.round_trip_s)
        broker = self._broker_at(host, port)
        while broker.swallows_dials:
            waiter = asyncio.get_running_loop().create_future()
            broker.dials.append(waiter)
            await waiter
            broker = self._broker_at(host, port)
        client_side, broker_side = connect(
            (host, port), (f"client-{self._connections + 1}", 0), lambda: self.round_trip_s / 2
        )
        if self.chunk_size is not None:
            client_side.chunk_size = broker_side.chunk_size = self.chunk_size
        broker_side.attach(self._new_connection(broker))
        protocol = factory()
        client_side.attach(protocol)
        return client_side, protocol

    def _new_connection(self, broker: FakeBroker) -> FakeConnection:
        self._connections += 1
        number = self._connections

        def record(frame: RequestFrame, size: int) -> Request:
            names = self._state.topic_names
            request = Request(broker.node_id, number, self._now(), frame, size, names)
            self.requests.append(request)
            return request

        return FakeConnection(self._state, broker, record)

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

    def stop_broker(self, node_id: int, *, elect: bool = True) -> None:
        """Kill a broker: its connections end, and it refuses new ones.

        With ``elect`` another in-sync replica becomes leader of its partitions; without such a
        replica a partition has no leader. Without ``elect`` the cluster has not noticed that the
        broker is down, and metadata still contains it.
        """
        broker = self._broker(node_id)
        broker.running = False
        if node_id in self._listeners:
            self._listeners[node_id].close()
        for connection in list(broker.connections):
            connection.transport.abort()
        if elect:
            self._state.broker_left(node_id)

    def start_broker(self, node_id: int) -> None:
        """Start a stopped broker. It becomes leader of its partitions without a leader."""
        self._broker(node_id).running = True
        if node_id in self._listeners:
            self._listeners[node_id].open()
        self._state.broker_joined(node_id)

    def stall_broker(self, node_id: int, *, swallow_dials: bool = False) -> None:
        """Pause a broker: its connections stay open, but it reads and answers nothing.

        New connections are accepted but not answered, as by the kernel for a paused process. With
        ``swallow_dials`` they are not accepted, as in a dead network.
        """
        broker = self._broker(node_id)
        broker.stalled = True
        broker.swallows_dials = swallow_dials
        for connection in broker.connections:
            connection.stall()

    def resume_broker(self, node_id: int) -> None:
        """End a stall. The broker handles the requests that it received during the stall."""
        broker = self._broker(node_id)
        broker.stalled = broker.swallows_dials = False
        dials, broker.dials = broker.dials, []
        for dial in dials:
            if not dial.done():
                dial.set_result(None)
        for connection in list(broker.connections):
            connection.resume()

    def drop_connections(self, node_id: int | None = None) -> int:
        """Reset all connections of a broker, or of all brokers. Returns their number."""
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
        """The number of connections of a broker."""
        return len(self._broker(node_id).connections)

    def set_address(self, node_id: int, host: str, port: int = _PORT) -> None:
        """Move a broker to another address, in memory only. Connections to the old address end or
        are refused."""
        if self._listeners:
            raise ValueError("a broker that is served over TCP keeps its port")
        broker = self._broker(node_id)
        broker.host, broker.port = host, port
        self.drop_connections(node_id)

    def control(
        self,
        api_key: int,
        decide: Callable[[Request], Answer] | Answer,
        *,
        keep: bool = False,
        broker: int | None = None,
    ) -> Control:
        """Intercept the requests of one API, at one broker or at all brokers.

        ``decide`` is an :data:`~.interceptors.Answer`, or a function from a :class:`Request` to an
        answer. None passes the request to the next control, finally to the broker's normal
        behavior. Without ``keep`` a control is removed after its first answer that is not None."""
        control = Control(api_key, decide, keep, broker)
        self._state.interceptors.append(control)
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
        """Fail the next ``times`` batches of a partition, but not other batches in the request.

        ``record_errors`` are (index in the batch, message) pairs (KIP-467). With ``append`` the
        batch is written although it fails, as with NOT_ENOUGH_REPLICAS_AFTER_APPEND.
        """
        errors = [
            {"batch_index": index, "batch_index_error_message": told}
            for index, told in record_errors
        ]
        for _ in range(times):
            failure = ScriptedError(error_code, message, record_errors=errors)
            failure.append = append
            self._state.produce_failures[topic, partition].append(failure)

    def delay_produce(self, node_id: int, seconds: float, *, overlapping: bool = False) -> None:
        """Delay the answers to a broker's Produce requests by ``seconds``, one after the other on
        each connection (KIP-794's slow broker); 0 ends the delay.

        With ``overlapping`` the requests of a connection do not wait for each other, as with
        brokers that write to an object store."""
        broker = self._broker(node_id)
        broker.produce_delay_s, broker.produce_delays_overlap = seconds, overlapping

    def throttle(self, milliseconds: int, node_id: int | None = None) -> None:
        """Set the throttle time in Produce responses of a broker, or of all brokers; 0 ends it.

        A client must send nothing on the connection during this time (KIP-219). The fake does not
        enforce this: :attr:`requests` shows what the client sends.
        """
        for broker in self._state.brokers.values():
            if node_id in {None, broker.node_id}:
                broker.throttle_ms = milliseconds

    def set_versions(self, api_key: int, oldest: int, newest: int) -> None:
        """Offer other versions of an API, from the range that the API's module implements."""
        self._state.versions[api_key] = (oldest, newest)

    def subscribe_metrics(
        self,
        *names: str,
        interval_ms: int = 300_000,
        compression: Sequence[int] = (),
        delta: bool = False,
        max_bytes: int = 1_048_576,
    ) -> None:
        """Want metrics of all clients (KIP-714): those whose names begin with ``names``; "" stands
        for all, and without names there are none. Another call replaces the subscription."""
        self._subscriptions += 1
        self._state.client_metrics = ClientMetrics(
            self._subscriptions, names, interval_ms, tuple(compression), delta, max_bytes
        )
        for api in client_metrics.APIS:
            self._state.versions[api.key] = api.versions

    def requests_of(self, api_key: int, broker: int | None = None) -> list[Request]:
        """The received requests of one API, at one broker or at all brokers."""
        return [
            request
            for request in self.requests
            if request.api_key == api_key and broker in {None, request.broker}
        ]
