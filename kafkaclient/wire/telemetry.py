"""GetTelemetrySubscriptions and PushTelemetry, version 0 (KIP-714), encoded and decoded by hand:
kafka-python does not have them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from kafkaclient.errors import ProtocolError
from kafkaclient.wire.api import NO_TAGS, ApiKey, Call, framed, malformed, request, uvarint
from kafkaclient.wire.reader import FieldReader

if TYPE_CHECKING:
    from kafkaclient.types import Buffer

NO_INSTANCE_ID = UUID(int=0)
"""The client instance id of the first request: the broker chooses one."""

_RESULT = struct.Struct(">ih")  # throttle time in ms, error code
_SUBSCRIPTION = struct.Struct(">16si")  # client instance id, subscription id
_LIMITS = struct.Struct(">ii?")  # push interval in ms, telemetry.max.bytes, delta temporality
_PUSH = struct.Struct(">16si?b")  # the ids, terminating, compression type


class TelemetrySubscription(NamedTuple):
    """Which metrics the broker wants of this client, how often, and how they are sent."""

    error_code: int
    client_instance_id: UUID
    subscription_id: int
    compression_types: tuple[int, ...]
    """What the broker decompresses, in its order of preference."""
    push_interval_ms: int
    max_bytes: int
    """The most bytes of metrics in one push, after compression."""
    delta_temporality: bool
    """Whether counters are sent as what was added since the push before."""
    requested_metrics: tuple[str, ...]
    """The beginnings of the metrics' names. "" and a single "*" stand for all metrics."""
    throttle_ms: int


class GetTelemetrySubscriptionsCall(
    Call[TelemetrySubscription], api_key=ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, versions=(0, 0)
):
    """Asks which metrics the broker wants. Any broker answers."""

    def __init__(self, client_instance_id: UUID = NO_INSTANCE_ID) -> None:
        self.client_instance_id = client_instance_id

    def encode(self, version: int, correlation_id: int, client_id: str) -> bytes:
        frame = request(self.api_key, version, correlation_id, client_id, flexible=True)
        return framed(frame + self.client_instance_id.bytes + NO_TAGS)

    def decode(self, version: int, payload: Buffer) -> TelemetrySubscription:
        reader = FieldReader(payload, flexible=True)
        try:
            reader.tagged_fields()  # of the response header
            throttle_ms, error_code = reader.unpack(_RESULT)
            instance_id, subscription_id = reader.unpack(_SUBSCRIPTION)
            compression_types = tuple([reader.int8() for _ in reader.array(1)])
            push_interval_ms, max_bytes, delta_temporality = reader.unpack(_LIMITS)
            metrics = tuple([reader.string() for _ in reader.array(1)])
            reader.tagged_fields()
        except ProtocolError as error:
            raise malformed(self, version, payload, error) from error
        return TelemetrySubscription(
            error_code,
            UUID(bytes=instance_id),
            subscription_id,
            compression_types,
            push_interval_ms,
            max_bytes,
            delta_temporality,
            metrics,
            throttle_ms,
        )


class TelemetryPushed(NamedTuple):
    """Whether the broker has taken the metrics."""

    error_code: int
    throttle_ms: int


class PushTelemetryCall(Call[TelemetryPushed], api_key=ApiKey.PUSH_TELEMETRY, versions=(0, 0)):
    """Sends metrics: OpenTelemetry's ``MetricsData`` (v1), compressed as a whole. ``terminating``:
    whether this is the client's last push."""

    def __init__(
        self,
        client_instance_id: UUID,
        subscription_id: int,
        terminating: bool,
        compression_type: int,
        metrics: bytes,
    ) -> None:
        self._head = _PUSH.pack(
            client_instance_id.bytes, subscription_id, terminating, compression_type
        )
        self._metrics = metrics

    def encode(self, version: int, correlation_id: int, client_id: str) -> bytes:
        frame = request(self.api_key, version, correlation_id, client_id, flexible=True)
        frame += self._head + uvarint(len(self._metrics) + 1) + self._metrics
        return framed(frame + NO_TAGS)

    def decode(self, version: int, payload: Buffer) -> TelemetryPushed:
        reader = FieldReader(payload, flexible=True)
        try:
            reader.tagged_fields()
            throttle_ms, error_code = reader.unpack(_RESULT)
            reader.tagged_fields()
        except ProtocolError as error:
            raise malformed(self, version, payload, error) from error
        return TelemetryPushed(error_code, throttle_ms)
