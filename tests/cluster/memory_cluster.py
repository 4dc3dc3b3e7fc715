"""A small cluster in memory behind the dialer: it refuses, hangs, moves and answers on command."""

from __future__ import annotations

import asyncio
import functools
import inspect
import struct
from collections import deque
from random import Random
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from kafkaclient.cluster.metadata import Metadata
from kafkaclient.cluster.router import Router
from kafkaclient.cluster.view import Broker, ClusterView
from kafkaclient.cluster.waits import Waits
from kafkaclient.config import ProducerConfig
from kafkaclient.testing.clock import virtual_time
from kafkaclient.wire.api import ApiKey
from kafkaclient.wire.codec import decode_request, encode_response

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

HIGHEST = {ApiKey.PRODUCE: 12, ApiKey.METADATA: 13, ApiKey.API_VERSIONS: 5}


class Seen(NamedTuple):
    at: float
    address: str
    api_key: int
    version: int
    message: Any


class Pipe(asyncio.Transport):
    """The client's end of a connection to a broker in memory."""

    def __init__(self, net: Net, address: str, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self.net, self.address, self.protocol = net, address, protocol
        self.closing = False
        self.stuck = False
        self.outbox: deque[bytes] = deque()

    def write(self, data: Any) -> None:
        (size,) = struct.unpack_from(">i", data)
        assert size == len(data) - 4
        self.net.serve(self, bytes(data[4:]))

    def writelines(self, buffers: Any) -> None:
        self.write(b"".join(buffers))

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        if not self.stuck:
            self.lose(None)

    def abort(self) -> None:
        self.lose(None)

    def lose(self, error: Exception | None) -> None:
        if not self.closing:
            self.closing = True
            self.net.pipes.remove(self)
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, error)

    def answer(self) -> None:
        if not self.closing:
            self.protocol.data_received(self.outbox.popleft())


class Net:
    """Addresses that are brokers, and what is wrong with each of them."""

    def __init__(self) -> None:
        self.brokers: dict[int, str] = {}
        self.dials: list[tuple[float, str]] = []
        self.seen: list[Seen] = []
        self.pipes: list[Pipe] = []
        self.black_holes: set[str] = set()
        self.refusing: set[str] = set()
        self.silent: set[str] = set()
        self.mute: set[str] = set()
        """They shake hands, and answer nothing else."""
        self.broken: dict[str, Exception] = {}
        self.resets_api_versions_above: dict[str, int] = {}
        self.delay_s = 0.001
        self.throttle_ms = 0
        self.metadata_error = 0
        self.forgets_brokers = False
        self.topics: dict[str, dict[str, Any] | int] = {}

    def topic(
        self, name: str, *leaders: int, epoch: int = 0, topic_id: int = 1, error: int = 0
    ) -> None:
        self.topics[name] = {
            "error_code": error,
            "name": name,
            "topic_id": UUID(int=topic_id),
            "partitions": [
                {
                    "partition_index": n,
                    "leader_id": leader,
                    "leader_epoch": epoch,
                    "replica_nodes": [leader],
                    "isr_nodes": [leader],
                }
                for n, leader in enumerate(leaders)
            ],
        }

    async def dial(self, host: str, port: int, factory: Any) -> Any:
        address = f"{host}:{port}"
        loop = asyncio.get_running_loop()
        self.dials.append((loop.time(), address))
        await asyncio.sleep(self.delay_s)
        if address in self.black_holes:
            await loop.create_future()
        if address in self.broken:
            raise self.broken[address]
        if address in self.refusing or address not in self.brokers.values():
            raise ConnectionRefusedError(f"refused by {address}")
        protocol = factory()
        pipe = Pipe(self, address, protocol)
        self.pipes.append(pipe)
        protocol.connection_made(pipe)
        return pipe, protocol

    def serve(self, pipe: Pipe, frame: bytes) -> None:
        loop = asyncio.get_running_loop()
        request = decode_request(frame)
        self.seen.append(
            Seen(loop.time(), pipe.address, request.api_key, request.version, request.message)
        )
        mute = pipe.address in self.mute and request.api_key != ApiKey.API_VERSIONS
        if mute or pipe.address in self.silent:
            return
        if request.api_key == ApiKey.API_VERSIONS:
            if request.version > self.resets_api_versions_above.get(pipe.address, 99):
                pipe.lose(ConnectionResetError("reset"))
                return
            fields = {
                "api_keys": [
                    {"api_key": key, "min_version": 0, "max_version": newest}
                    for key, newest in HIGHEST.items()
                ]
            }
        else:
            fields = self.metadata([topic.name for topic in request.message.topics])
        answer = encode_response(request.api_key, request.version, request.correlation_id, **fields)
        pipe.outbox.append(answer)  # timers of the same moment fire in any order
        loop.call_later(self.delay_s, pipe.answer)

    def metadata(self, names: list[str]) -> dict[str, Any]:
        brokers = []
        for node_id, address in self.brokers.items():
            host, _, port = address.partition(":")
            brokers.append({"node_id": node_id, "host": host, "port": int(port), "rack": None})
        topics = []
        for name in names:
            known = self.topics.get(name, 3)
            if isinstance(known, int):
                known = {"error_code": known, "name": name, "topic_id": UUID(int=0)}
            topics.append({"partitions": [], "is_internal": False, **known})
        return {
            "throttle_time_ms": self.throttle_ms,
            "brokers": [] if self.forgets_brokers else brokers,
            "cluster_id": "mem",
            "controller_id": 0,
            "topics": topics,
            "error_code": self.metadata_error,
        }

    def asked(self, key: ApiKey = ApiKey.METADATA) -> list[Seen]:
        return [seen for seen in self.seen if seen.api_key == key]

    def asked_topics(self) -> list[list[str]]:
        return [sorted(topic.name for topic in seen.message.topics) for seen in self.asked()]

    def lose_all(self, address: str | None = None) -> None:
        for pipe in list(self.pipes):
            if address in (None, pipe.address):
                pipe.lose(ConnectionResetError("reset"))


class Bench:
    """Three brokers b0..b2, and a router and metadata over them; call inside the loop."""

    def __init__(self, *, bootstrap: str = "b0:9092", **options: Any) -> None:
        self.net = Net()
        self.net.brokers = {n: f"b{n}:9092" for n in range(3)}
        self.config = ProducerConfig.build(None, {"bootstrap_servers": bootstrap, **options})
        self.router = Router(self.config, self.net, clock=now, rng=Random(1))
        self.metadata = Metadata(
            self.config, self.router, clock=now, rng=Random(2), waits=Waits(now)
        )
        self.changes: list[int] = []
        self._change = asyncio.Event()
        self.router.on_connection_change = self._changed

    async def __aenter__(self) -> Bench:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.metadata.stop()
        await self.router.close()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        loop: Any = asyncio.get_running_loop()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert not self.net.pipes
        late = [
            handle
            for handle in loop._scheduled
            if not handle.cancelled() and "Pipe.answer" not in repr(handle)
        ]
        assert not late

    def _changed(self, node_id: int) -> None:
        self.changes.append(node_id)
        self._change.set()

    async def produce_connection(self, node_id: int, timeout_s: float = 60.0) -> Any:
        """Ask as a sender does: again after every change."""
        async with asyncio.timeout(timeout_s):
            while True:
                self._change.clear()
                connection = self.router.produce_connection(node_id)
                if connection is not None:
                    return connection
                await self._change.wait()


def now() -> float:
    return asyncio.get_running_loop().time()


def view_of(*node_ids: int, port: int = 9092) -> ClusterView:
    brokers = {n: Broker(n, f"b{n}", port) for n in node_ids}
    return ClusterView(brokers=MappingProxyType(brokers))


def benched(*, started: bool = False, **options: Any) -> Callable[[Any], Any]:
    """Decorate a test so that it runs in virtual time, in a :class:`Bench` with these options, its
    first argument. ``started``: whether its metadata is."""

    def decorate(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
        @virtual_time
        @functools.wraps(test)
        async def run(*args: Any, **kwargs: Any) -> None:
            async with Bench(**options) as b:
                if started:
                    await b.metadata.start()
                await test(b, *args, **kwargs)

        _, *fixtures = inspect.signature(test).parameters.values()
        run.__signature__ = inspect.Signature(fixtures)  # type: ignore[attr-defined]
        return run

    return decorate
