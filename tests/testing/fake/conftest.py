"""A client of few lines that speaks to the fake through the calls of kafkaclient.wire."""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.wire import produce
from kafkaclient.wire.records import BatchBuilder

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kafkaclient.testing.fake import FakeCluster
    from kafkaclient.wire.api import Call
    from kafkaclient.wire.produce import PartitionResult, ProduceResult
    from kafkaclient.wire.transactions import TxnIdentity


class Client(asyncio.Protocol):
    """One connection. Answers arrive in the order of the requests, or the test is at fault."""

    transport: asyncio.Transport
    fake: FakeCluster

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.frames: asyncio.Queue[bytes] = asyncio.Queue()
        self.lost: asyncio.Future[Exception | None] = self.loop.create_future()
        self._received = bytearray()
        self._correlation_id = 0

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 4:
            (size,) = struct.unpack_from(">i", self._received)
            if len(self._received) < size + 4:
                return
            self.frames.put_nowait(bytes(self._received[4 : size + 4]))
            del self._received[: size + 4]

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(exc)

    async def receive(self) -> tuple[int, bytes]:
        """(correlation id, payload); ConnectionError when the connection ends instead."""
        frame = asyncio.ensure_future(self.frames.get())
        await asyncio.wait([frame, self.lost], return_when=asyncio.FIRST_COMPLETED)
        if not frame.done():
            frame.cancel()
            raise ConnectionError(str(self.lost.result()))
        data = frame.result()
        return struct.unpack_from(">i", data)[0], data[4:]

    def next_id(self) -> int:
        self._correlation_id += 1
        return self._correlation_id

    async def call(self, call: Call[Any], version: int | None = None) -> Any:
        version = call.max_version if version is None else version
        correlation_id = self.next_id()
        self.transport.write(call.encode(version, correlation_id, "test"))
        answered, payload = await self.receive()
        assert answered == correlation_id
        return call.decode(version, payload)

    def send_produce(
        self,
        *batches: tuple[str, int, Any],
        acks: int = -1,
        version: int = 12,
        transaction: str | None = None,
    ) -> int:
        correlation_id = self.next_id()
        topics = [
            (topic if version < 13 else self._id(topic), [(partition, batch)])
            for topic, partition, batch in batches
        ]
        self.transport.writelines(
            produce.encode_request(
                version, correlation_id, "test", acks, 30_000, topics, transaction
            )
        )
        return correlation_id

    def _id(self, topic: str) -> bytes:
        return self.fake.topic_id(topic).bytes

    async def produce(self, *batches: tuple[str, int, Any], **options: Any) -> ProduceResult:
        version = options.setdefault("version", 12)
        correlation_id = self.send_produce(*batches, **options)
        answered, payload = await self.receive()
        assert answered == correlation_id
        names = {self._id(topic): topic for topic, *_ in batches if version >= 13}
        return produce.decode_response(version, payload, names)

    async def produce_one(
        self, topic: str, partition: int, batch: Any, *, acks: int = -1, version: int = 12
    ) -> PartitionResult:
        result = await self.produce((topic, partition, batch), acks=acks, version=version)
        return result.partitions[0]


@pytest.fixture
def dial() -> Callable[..., Awaitable[Client]]:
    async def dial(fake: FakeCluster, node_id: int = 0) -> Client:
        transport, client = await fake.dial(f"fake-{node_id}", 9092, Client)
        client.transport, client.fake = transport, fake
        return client

    return dial


@pytest.fixture
def batch() -> Callable[..., bytes]:
    """A sealed batch: values, and the producer's identity when it is idempotent."""

    def build(
        *values: bytes,
        key: bytes | None = None,
        producer_id: int = -1,
        epoch: int = -1,
        sequence: int = -1,
        codec: int = 0,
    ) -> bytes:
        builder = BatchBuilder(1 << 20)
        for value in values or (b"value",):
            assert builder.append(1_700_000_000_000, key, value, [("h", b"1")])
        builder.seal(codec, None)
        builder.stamp(producer_id, epoch, sequence)
        return bytes(builder.buffer())

    return build


@pytest.fixture
def transactional_batch() -> Callable[..., bytes]:
    """A batch with one value, of a transaction of the :class:`TxnIdentity` given."""

    def build(who: TxnIdentity, sequence: int, value: bytes) -> bytes:
        builder = BatchBuilder(1 << 10)
        assert builder.append(1_700_000_000_000, None, value)
        builder.seal()
        builder.stamp(who.producer_id, who.producer_epoch, sequence, transactional=True)
        return bytes(builder.buffer())

    return build
