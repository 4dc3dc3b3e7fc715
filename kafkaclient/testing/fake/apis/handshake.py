"""The APIs that open a connection: versions and authentication.

ApiVersions (18), versions 0 to 5
    The answer is the cluster's ``versions``, a range per API, which come from :data:`PROFILES` or
    from a test. Version 5 gets REBOOTSTRAP_REQUIRED if it names another cluster or broker
    (KIP-1242), with SASL only after the login, as in Kafka 4.4. A request in an unsupported version
    is answered in version 0 with UNSUPPORTED_VERSION; from Kafka 2.4 on that answer contains the
    range of ApiVersions (KIP-511). Some brokers, such as Azure Event Hubs, close the connection
    instead above a version (:data:`CLOSES_ABOVE`). The feature level ``transaction.version`` is 2
    if the cluster has transactions v2 (KIP-890).

SaslHandshake (17), versions 0 and 1, and SaslAuthenticate (36), versions 0 to 2
    Without a :class:`~kafkaclient.testing.fake.Sasl` there is no authentication, and both get
    ILLEGAL_SASL_STATE. With it a connection may send only ApiVersions and SASL requests before it
    has authenticated, only SASL requests while it authenticates again (KIP-368), and only
    SaslHandshake after the end of its session. Any other request closes the connection, as in
    Kafka. One message authenticates, as with PLAIN and OAUTHBEARER. After a refusal the client
    closes the connection, or the broker closes it at the next request. SaslAuthenticate returns the
    lifetime of the session from version 1 on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkaclient.testing.fake.apis.api import Api
from kafkaclient.testing.fake.log import ErrorCode, RefusedError
from kafkaclient.wire.api import ApiKey
from kafkaclient.wire.api_versions import FIRST_WITH_NODE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkaclient.testing.fake.apis.api import Fields
    from kafkaclient.testing.fake.interceptors import Request
    from kafkaclient.testing.fake.serving import Sasl
    from kafkaclient.testing.fake.state import ClusterState

_FIRST_FLEXIBLE = 3

PROFILES: Mapping[str, Mapping[int, tuple[int, int]]] = {
    "kafka-4": {ApiKey.PRODUCE: (0, 13)},
    "kafka-4.0": {ApiKey.PRODUCE: (0, 12), ApiKey.API_VERSIONS: (0, 4)},
    "kafka-3": {
        ApiKey.PRODUCE: (0, 9),
        ApiKey.METADATA: (0, 12),
        ApiKey.API_VERSIONS: (0, 3),
        ApiKey.TXN_OFFSET_COMMIT: (0, 3),
        ApiKey.END_TXN: (0, 3),
    },
    "kafka-2.1": {
        ApiKey.PRODUCE: (0, 7),
        ApiKey.METADATA: (0, 7),
        ApiKey.API_VERSIONS: (0, 2),
        ApiKey.INIT_PRODUCER_ID: (0, 1),
        ApiKey.CREATE_TOPICS: (0, 3),
        ApiKey.LIST_OFFSETS: (0, 4),
    },
    "event-hubs": {
        ApiKey.PRODUCE: (3, 9),
        ApiKey.METADATA: (0, 9),
        ApiKey.API_VERSIONS: (0, 3),
    },
}
"""Profile -> the version ranges that differ from the newest ones that the fake implements.

Brokers since 4.0 still offer Produce from version 0 on, for clients that see from it which formats
a broker knows (KAFKA-18659), and close the connection at versions before 3."""

CLOSES_ABOVE: Mapping[str, int] = {"event-hubs": 3}
"""Profile -> the newest ApiVersions version at which the broker keeps the connection open."""


def _api_versions(state: ClusterState, request: Request) -> Fields:
    if request.version >= FIRST_WITH_NODE and (
        state.sasl is None or state.sasl.is_authenticated(request)
    ):
        meant = request.message.cluster_id, request.message.node_id
        if (meant[0] is None) != (meant[1] == -1):
            raise RefusedError(ErrorCode.INVALID_REQUEST)
        if meant not in ((None, -1), (state.cluster_id, request.broker)):
            raise RefusedError(ErrorCode.REBOOTSTRAP_REQUIRED)
    level = 2 if state.transactions_v2 else 1
    levels = {"max_version_level": level, "min_version_level": level}
    return {
        "api_keys": [_range(key, *versions) for key, versions in sorted(state.versions.items())],
        "finalized_features_epoch": 1,
        "finalized_features": [{"name": "transaction.version", **levels}],
    }


def unsupported(state: ClusterState) -> Fields:
    """The fields of the version 0 answer to an unsupported version of ApiVersions."""
    oldest, newest = state.versions[ApiKey.API_VERSIONS]
    known = [_range(ApiKey.API_VERSIONS, oldest, newest)] if newest >= _FIRST_FLEXIBLE else []
    return {"error_code": ErrorCode.UNSUPPORTED_VERSION, "api_keys": known}


def _range(api_key: int, oldest: int, newest: int) -> Fields:
    return {"api_key": int(api_key), "min_version": oldest, "max_version": newest}


def _sasl(state: ClusterState) -> Sasl:
    if state.sasl is None:
        raise RefusedError(ErrorCode.ILLEGAL_SASL_STATE)
    return state.sasl


APIS = (
    Api(ApiKey.API_VERSIONS, (0, 5), _api_versions),
    Api(ApiKey.SASL_HANDSHAKE, (0, 1), lambda state, request: _sasl(state).handshake(request)),
    Api(
        ApiKey.SASL_AUTHENTICATE,
        (0, 2),
        lambda state, request: _sasl(state).authenticate(request, state.now()),
    ),
)
