"""Well-formed inputs for every target, to begin with."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from fuzz.targets import CALLS, FETCH
from kafkaclient.wire import codec
from kafkaclient.wire.api import ApiKey
from kafkaclient.wire.api_versions import ApiVersionsCall
from kafkaclient.wire.compression import CompressionType, compress
from kafkaclient.wire.fetch import ListOffsetsCall
from kafkaclient.wire.metadata import MetadataCall
from kafkaclient.wire.producer_ids import InitProducerIdCall
from kafkaclient.wire.records import BatchBuilder
from kafkaclient.wire.topics import CreateTopicsCall, DeleteTopicsCall, NewTopic

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["seeds"]

_FRAME = 8  # size and correlation id, which targets do not get

_PARTITION = {
    "index": 3,
    "error_code": 6,
    "base_offset": 77,
    "log_append_time_ms": -1,
    "log_start_offset": 5,
    "record_errors": [{"batch_index": 1, "batch_index_error_message": "bad"}],
    "error_message": "moved",
    "current_leader": {"leader_id": 2, "leader_epoch": 9},
}
_PRODUCED = {
    "responses": [{"name": "topic", "partition_responses": [_PARTITION, _PARTITION]}],
    "throttle_time_ms": 10,
    "node_endpoints": [{"node_id": 2, "host": "host", "port": 9092, "rack": "a"}],
}
_FETCHED = {
    "throttle_time_ms": 10,
    "responses": [
        {
            "topic": "topic",
            "partitions": [
                {
                    "partition_index": 3,
                    "error_code": 6,
                    "high_watermark": 77,
                    "aborted_transactions": [{"producer_id": 5, "first_offset": 6}],
                    "records": b"records",
                    "current_leader": {"leader_id": 2, "leader_epoch": 9},
                }
            ]
            * 2,
        }
    ],
    "node_endpoints": [{"node_id": 2, "host": "host", "port": 9092, "rack": "a"}],
}
_TOLD = {
    "brokers": [{"node_id": 1, "host": "host", "port": 9092, "rack": None}],
    "cluster_id": "id",
    "controller_id": 1,
    "topics": [
        {
            "error_code": 0,
            "name": "topic",
            "is_internal": False,
            "partitions": [
                {
                    "error_code": 0,
                    "partition_index": n,
                    "leader_id": 1,
                    "leader_epoch": 4,
                    "replica_nodes": [1, 2, 3],
                    "isr_nodes": [1, 2],
                    "offline_replicas": [3],
                }
                for n in range(3)
            ],
        }
    ],
}


def seeds(target: str) -> list[bytes]:
    """Valid inputs; none for targets that random bytes serve as well."""
    found = {
        "produce_response": _produce_responses,
        "metadata_response": _metadata_responses,
        "control_response": _control_responses,
        "sasl_challenge": _challenges,
        "request": _requests,
        "fetch_response": _fetch_responses,
        "record_batch": _batches,
        "fetched_part": _parts,
        "decompression": _compressed,
        "connection": _frames,
    }.get(target)
    return list(found()) if found else [bytes(range(64))]


def _answer(api_key: int, version: int, fields: dict[str, Any]) -> bytes:
    return codec.encode_response(api_key, version, 1, **fields)[_FRAME:]


def _produce_responses() -> Iterator[bytes]:
    for number, version in enumerate(range(3, 14)):
        yield bytes([number]) + _answer(ApiKey.PRODUCE, version, _PRODUCED)


def _metadata_responses() -> Iterator[bytes]:
    oldest, newest = MetadataCall.min_version, MetadataCall.max_version
    for number, version in enumerate(range(oldest, newest + 1)):
        yield bytes([number]) + _answer(ApiKey.METADATA, version, _TOLD)


def _control_responses() -> Iterator[bytes]:
    for number, call in enumerate(CALLS):
        for version in range(call.max_version - call.min_version + 1):
            encoded = call.min_version + version
            if call.api_key == ApiKey.TXN_OFFSET_COMMIT:  # without topics version 6 is as 5
                encoded = min(encoded, 5)
            yield bytes([number, version]) + _answer(call.api_key, encoded, {})


def _challenges() -> Iterator[bytes]:
    said = (
        b"",
        b"e=other-error",
        b"r=nonce,s=c2FsdA==,i=4096\nv=cHJvb2Y=",
        b'{"status":"invalid"}',
    )
    for mechanism in range(4):
        for words in said:
            yield bytes([mechanism]) + words


def _requests() -> Iterator[bytes]:
    calls: tuple[Any, ...] = (
        ApiVersionsCall(),
        InitProducerIdCall("tx"),
        CreateTopicsCall((NewTopic("t", 1, 1),)),
        DeleteTopicsCall(("t",)),
        ListOffsetsCall({"t": (0, 1)}),
        MetadataCall(("t",)),
    )
    for call in calls:
        for version in range(call.min_version, call.max_version + 1):
            yield call.encode(version, 1, "me")[4:]


def _batches() -> Iterator[bytes]:
    for chosen in CompressionType:
        builder = BatchBuilder(1000)
        for n in range(3):
            builder.append(1000 + n, b"key", b"value" * n, (("h", b"x"), ("n", None)))
        builder.seal(chosen)
        yield bytes(builder.buffer())


def _parts() -> Iterator[bytes]:
    for batch in _batches():
        for flag in (b"\0", b"\1"):
            yield flag + batch
            yield flag + batch[:22] + bytes([batch[22] | 0x30]) + batch[23:] + batch


def _fetch_responses() -> Iterator[bytes]:
    for number, version in enumerate(range(FETCH.min_version, FETCH.max_version + 1)):
        yield bytes([number]) + _answer(ApiKey.FETCH, version, _FETCHED)


def _compressed() -> Iterator[bytes]:
    noise = Random(1).randbytes(300)
    for number, chosen in enumerate(CompressionType):
        for plain in (b"", b"abc" * 50, noise):
            yield bytes([number]) + compress(chosen, plain)


def _frames() -> Iterator[bytes]:
    for requests in range(6):
        frames = b"".join(
            (4 + n).to_bytes(4, "big") + (n + 1).to_bytes(4, "big") + bytes(n)
            for n in range(requests)
        )
        yield bytes([requests, 7]) + frames
