"""What is fuzzed. A target takes any bytes and returns; if it raises, hangs or takes memory that
the bytes do not account for, that is a defect.

The invariant of every decoder: bytes give a result or :class:`~kafkaclient.errors.ProtocolError`.
The first bytes of an input choose versions and the like.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkaclient.errors import KafkaError, ProtocolError, UnreadableBatchError
from kafkaclient.net.connection import Connection
from kafkaclient.net.login import KeyCache, Scram256, Scram512
from kafkaclient.net.mechanisms import OAuthBearer, Plain, SaslRefusedError
from kafkaclient.net.pending_request import PendingRequest
from kafkaclient.net.tokens import Token
from kafkaclient.reader.batch import FetchedPart
from kafkaclient.types import TopicPartition
from kafkaclient.wire import api_versions, codec, fetch, produce, telemetry, topics, transactions
from kafkaclient.wire import api_versions as sasl
from kafkaclient.wire.compression import CompressionType, decompress
from kafkaclient.wire.fetch import AbortedTransaction, FetchCall, FetchTopic
from kafkaclient.wire.metadata import MetadataCall, TopicCache
from kafkaclient.wire.reader import FieldReader
from kafkaclient.wire.record_reader import batch_header, iter_records, verify_crc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafkaclient.net.mechanisms import Mechanism

__all__ = ["CALLS", "TARGETS"]

_LIMIT = 1 << 20
"""The most bytes that decompression may yield."""

_READS = ("int8", "int16", "int32", "int64", "uvarint", "nullable_string", "string")
_READS += ("tagged_fields", "array")


def _outcome(read: Callable[[], Any]) -> Any:
    """What was read; the kind of error if nothing was."""
    try:
        return read()
    except ProtocolError as error:
        return type(error)


def _choice(data: bytes, at: int, options: int) -> int:
    return data[at] % options if at < len(data) else 0


# --- answers --------------------------------------------------------------------------------


def produce_response(data: bytes) -> None:
    versions = range(produce.MIN_VERSION, produce.MAX_VERSION + 1)
    version = versions[_choice(data, 0, len(versions))]
    _outcome(lambda: produce.decode_response(version, data[1:]))


def metadata_response(data: bytes) -> None:
    versions = range(MetadataCall.min_version, MetadataCall.max_version + 1)
    version, payload = versions[_choice(data, 0, len(versions))], data[1:]
    told = TopicCache()
    first = _outcome(lambda: MetadataCall(None, cache=told).decode(version, payload))
    assert first == _outcome(lambda: MetadataCall(None, cache=told).decode(version, payload))


FETCH = FetchCall((FetchTopic("topic", bytes(16), ()),), 500, 1, 1000)


def fetch_response(data: bytes) -> None:
    version = FETCH.min_version + _choice(data, 0, FETCH.max_version - FETCH.min_version + 1)
    _outcome(lambda: FETCH.decode(version, data[1:]))


def _calls() -> list[Any]:
    """Every control call but Metadata, in a fixed order."""
    modules = (api_versions, fetch, sasl, telemetry, topics, transactions)
    kinds = [kind for module in modules for kind in vars(module).values()]
    calls = {k for k in kinds if hasattr(k, "min_version") and not k.__module__.endswith("codec")}
    calls = {call for call in calls if not issubclass(call, FetchCall)}
    found = sorted(calls, key=lambda call: call.__name__)
    made = [call.__new__(call) for call in found]  # what an answer means asks for no fields
    for call in made:
        if "topic_ids" in type(call).__annotations__:  # but for the names of topics by id
            object.__setattr__(call, "topic_ids", {})
    return made


CALLS = _calls()


def control_response(data: bytes) -> None:
    call = CALLS[_choice(data, 0, len(CALLS))]
    version = call.min_version + _choice(data, 1, call.max_version - call.min_version + 1)
    _outcome(lambda: call.decode(version, data[2:]))


class _QuickKeys(KeyCache):
    """Deriving them takes the time that it is meant to take."""

    def get(self, password: str, mechanism: Any, salt: bytes, _: int) -> Any:
        return super().get(password, mechanism, salt, 1)


_MECHANISMS: tuple[Callable[[], Mechanism], ...] = (
    partial(Plain, "user", "password"),
    partial(Scram256, "user", "password", cache=_QuickKeys(), new_nonce=lambda: "n"),
    partial(Scram512, "user", "password", cache=_QuickKeys(), new_nonce=lambda: "n"),
    partial(OAuthBearer, Token("token")),
)


def sasl_challenge(data: bytes) -> None:
    """A broker's words, a line each: refused, or answered; with SCRAM it has no way to the end,
    because it does not know the password."""
    mechanism = _MECHANISMS[_choice(data, 0, len(_MECHANISMS))]()
    mechanism.first()
    for challenge in data[1:].split(b"\n"):
        try:
            answer = mechanism.answer(challenge)
        except SaslRefusedError:
            return
        assert isinstance(answer, bytes) or (answer is None and "SCRAM" not in mechanism.name)


# --- what brokers read ----------------------------------------------------------------------


def request(data: bytes) -> None:
    _outcome(lambda: codec.decode_request(data))


# --- records --------------------------------------------------------------------------------


def record_batch(data: bytes) -> None:
    _outcome(lambda: batch_header(data))
    _outcome(lambda: verify_crc(data))
    _outcome(lambda: sum(1 for _ in iter_records(data)))


def fetched_part(data: bytes) -> None:
    """What a reader makes of the bytes of a partition: batches of columns up to an error."""
    aborted = (AbortedTransaction(1, 0),) if _choice(data, 0, 2) else None
    data = data[1:]
    where = TopicPartition("t", 0)
    part = FetchedPart(where, memoryview(data), 0, aborted=aborted, check_crcs=False)
    position, seen = 0, 0
    with contextlib.suppress(UnreadableBatchError):
        while part:
            columns, after = part.take(position, 2**63 - 1, 200, True)
            assert after >= position
            assert seen <= len(data)
            position, seen = after, seen + (0 if columns is None else columns.rows)


def decompression(data: bytes) -> None:
    chosen = list(CompressionType)[_choice(data, 0, len(CompressionType))]
    plain = _outcome(lambda: decompress(chosen, data[1:], _LIMIT))
    assert plain is ProtocolError or len(plain) <= _LIMIT


# --- primitive types ------------------------------------------------------------------------


def primitive_types(data: bytes) -> None:
    flexible, steps = bool(_choice(data, 0, 2)), data[1:17]
    reader = FieldReader(data[17:], flexible=flexible)
    for step in steps:
        name = _READS[step % len(_READS)]
        read = getattr(reader, name)
        _outcome(partial(read, 1 + step % 7) if name == "array" else read)
        assert 0 <= reader.position <= reader.end


# --- a connection ---------------------------------------------------------------------------


class _Wire(asyncio.Transport):
    """Takes everything; tells of the end in the next turn, as real ones do."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._protocol: asyncio.Protocol | None = protocol

    def write(self, _: Any) -> None:
        pass

    def writelines(self, _: Any) -> None:
        pass

    def abort(self) -> None:
        protocol, self._protocol = self._protocol, None
        if protocol is not None:
            asyncio.get_running_loop().call_soon(protocol.connection_lost, None)

    close = abort


def connection(data: bytes) -> None:
    _loop().run_until_complete(_feed(_choice(data, 0, 6), 1 + _choice(data, 1, 64), data[2:]))


async def _feed(requests: int, chunk: int, data: bytes) -> None:
    """Every request ends exactly once, in order, and no more is kept than has come."""
    ended: list[int] = []
    peer = Connection(node="fuzz", client_id="fuzz", request_timeout_s=60)
    wire = _Wire(peer)
    peer.connection_made(wire)
    for n in range(requests):

        def done(
            _: PendingRequest, payload: memoryview | None, error: KafkaError | None, n: int = n
        ) -> None:
            assert (payload is None) != (error is None)
            ended.append(n)

        peer.send([b""], PendingRequest(peer.next_correlation_id(), done, peer._clock()))
    for start in range(0, len(data), chunk):
        if peer.closed:
            break
        peer.data_received(data[start : start + chunk])
        assert len(peer._partial or b"") <= len(data)
    wire.abort()
    await peer.wait_closed()
    assert ended == list(range(requests))


_loops: list[asyncio.AbstractEventLoop] = []


def _loop() -> asyncio.AbstractEventLoop:
    if not _loops:
        _loops.append(asyncio.new_event_loop())
    return _loops[0]


@contextlib.contextmanager
def closed_at_the_end() -> Iterator[None]:
    """Close what targets have kept open from one input to the next."""
    try:
        yield
    finally:
        while _loops:
            _loops.pop().close()


TARGETS: dict[str, Callable[[bytes], None]] = {
    target.__name__: target
    for target in (
        produce_response,
        metadata_response,
        control_response,
        sasl_challenge,
        request,
        fetch_response,
        record_batch,
        fetched_part,
        decompression,
        primitive_types,
        connection,
    )
}
