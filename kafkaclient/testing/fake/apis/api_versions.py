"""ApiVersions (18): the versions of the APIs that this cluster supports.

Behavior
    The answer is the cluster's ``versions``, a range per API, which come from :data:`PROFILES` or
    from a test. A request in an unsupported version is answered in version 0 with
    UNSUPPORTED_VERSION; from Kafka 2.4 on that answer contains the range of ApiVersions (KIP-511).
    Some brokers, such as Azure Event Hubs, close the connection instead above a version
    (:data:`CLOSES_ABOVE`). The feature level ``transaction.version`` is 2 if the cluster has
    transactions v2 (KIP-890).

Versions
    0 to 4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkaclient.testing.fake.error_code import ErrorCode
from kafkaclient.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkaclient.testing.fake.control import Request
    from kafkaclient.testing.fake.state import ClusterState

__all__ = ["CLOSES_ABOVE", "PROFILES", "VERSIONS", "answer", "refuse", "unsupported"]

VERSIONS = (0, 4)

_FIRST_FLEXIBLE = 3

PROFILES: Mapping[str, Mapping[int, tuple[int, int]]] = {
    "kafka-4": {},
    "kafka-4.0": {ApiKey.PRODUCE: (0, 12)},
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
"""Profile -> the version ranges that differ from the newest ones that the fake implements."""

CLOSES_ABOVE: Mapping[str, int] = {"event-hubs": 3}
"""Profile -> the newest ApiVersions version at which the broker keeps the connection open."""


def answer(state: ClusterState, _: Request) -> dict[str, Any]:
    """The response's fields."""
    ranges = [_range(key, *versions) for key, versions in sorted(state.versions.items())]
    level = 2 if state.transactions_v2 else 1
    levels = {"max_version_level": level, "min_version_level": level}
    return {
        "error_code": ErrorCode.NONE,
        "api_keys": ranges,
        "finalized_features_epoch": 1,
        "finalized_features": [{"name": "transaction.version", **levels}],
    }


def unsupported(state: ClusterState) -> dict[str, Any]:
    """The fields of the version 0 answer to an unsupported version."""
    oldest, newest = state.versions[ApiKey.API_VERSIONS]
    known = [_range(ApiKey.API_VERSIONS, oldest, newest)] if newest >= _FIRST_FLEXIBLE else []
    return {"error_code": ErrorCode.UNSUPPORTED_VERSION, "api_keys": known}


def refuse(_: Request, error_code: int) -> dict[str, Any]:
    return {"error_code": error_code, "api_keys": []}


def _range(api_key: int, oldest: int, newest: int) -> dict[str, Any]:
    return {"api_key": int(api_key), "min_version": oldest, "max_version": newest}
