"""The APIs for metrics that clients push (KIP-714).

No broker offers them before :meth:`FakeCluster.subscribe_metrics`, as brokers without a receiver of
metrics. What clients push is in :attr:`FakeCluster.requests`.

GetTelemetrySubscriptions (71), version 0
    The one subscription, which is for all clients. A request without a client instance id gets a
    new one. There is no limit on how often a client asks.

PushTelemetry (72), version 0
    Another subscription id than the current one gets UNKNOWN_SUBSCRIPTION_ID, a codec that is not
    accepted UNSUPPORTED_COMPRESSION_TYPE, and more bytes than ``max_bytes`` TELEMETRY_TOO_LARGE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkaclient.broker_errors import ErrorCode
from kafkaclient.testing.fake.apis.api import Api
from kafkaclient.testing.fake.log import RefusedError
from kafkaclient.wire.api import ApiKey
from kafkaclient.wire.telemetry import NO_INSTANCE_ID

if TYPE_CHECKING:
    from kafkaclient.testing.fake.apis.api import Fields
    from kafkaclient.testing.fake.interceptors import Request
    from kafkaclient.testing.fake.state import ClientMetrics, ClusterState

VERSIONS = (0, 0)


def _subscription(state: ClusterState) -> ClientMetrics:
    if state.client_metrics is None:
        raise RefusedError(ErrorCode.INVALID_REQUEST)
    return state.client_metrics


def _get_subscriptions(state: ClusterState, request: Request) -> Fields:
    found, known = _subscription(state), request.message.client_instance_id
    return {
        "client_instance_id": state.new_client_instance_id() if known == NO_INSTANCE_ID else known,
        **found._asdict(),
    }


def _push(state: ClusterState, request: Request) -> Fields:
    wanted, message = _subscription(state), request.message
    if message.subscription_id != wanted.subscription_id:
        raise RefusedError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
    if message.compression_type not in (0, *wanted.compression_types):
        raise RefusedError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    if len(message.metrics) > wanted.max_bytes:
        raise RefusedError(ErrorCode.TELEMETRY_TOO_LARGE)
    return {}


APIS = (
    Api(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, VERSIONS, _get_subscriptions),
    Api(ApiKey.PUSH_TELEMETRY, VERSIONS, _push),
)
