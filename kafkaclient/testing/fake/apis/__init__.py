"""The APIs that the fake cluster implements, with a module for each API key.

To add an API: a module with VERSIONS, answer and refuse, and its entry in APIS. kafka-python must
know the message (``wire/codec.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from kafkaclient.testing.fake.apis import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    api_versions,
    configs,
    create_partitions,
    create_topics,
    delete_topics,
    describe_log_dirs,
    describe_quorum,
    describe_transactions,
    end_txn,
    fetch,
    find_coordinator,
    init_producer_id,
    list_offsets,
    list_transactions,
    metadata,
    offset_fetch,
    produce,
    reassignments,
    sasl,
    txn_offset_commit,
)
from kafkaclient.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkaclient.testing.fake.control import Request
    from kafkaclient.testing.fake.state import ClusterState

__all__ = ["APIS", "Api"]


class Api(Protocol):
    """The interface of an API's module."""

    VERSIONS: tuple[int, int]
    """The oldest and the newest version that the module implements."""

    def answer(self, state: ClusterState, request: Request) -> dict[str, Any]:
        """Handle the request. Returns the fields of the response."""
        ...

    def refuse(self, request: Request, error_code: int) -> dict[str, Any]:
        """The fields of a response with the same error for all parts of the request."""
        ...


APIS: Mapping[int, Api] = {
    ApiKey.PRODUCE: produce,
    ApiKey.FETCH: fetch,
    ApiKey.LIST_OFFSETS: list_offsets,
    ApiKey.METADATA: metadata,
    ApiKey.OFFSET_FETCH: offset_fetch,
    ApiKey.FIND_COORDINATOR: find_coordinator,
    ApiKey.API_VERSIONS: api_versions,
    ApiKey.CREATE_TOPICS: create_topics,
    ApiKey.DELETE_TOPICS: delete_topics,
    ApiKey.DESCRIBE_CONFIGS: configs.DESCRIBE,
    ApiKey.CREATE_PARTITIONS: create_partitions,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: configs.ALTER,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: reassignments.ALTER,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: reassignments.LIST,
    ApiKey.DESCRIBE_LOG_DIRS: describe_log_dirs,
    ApiKey.DESCRIBE_QUORUM: describe_quorum,
    ApiKey.INIT_PRODUCER_ID: init_producer_id,
    ApiKey.SASL_HANDSHAKE: sasl.HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE: sasl.AUTHENTICATE,
    ApiKey.ADD_PARTITIONS_TO_TXN: add_partitions_to_txn,
    ApiKey.ADD_OFFSETS_TO_TXN: add_offsets_to_txn,
    ApiKey.END_TXN: end_txn,
    ApiKey.DESCRIBE_TRANSACTIONS: describe_transactions,
    ApiKey.LIST_TRANSACTIONS: list_transactions,
    ApiKey.TXN_OFFSET_COMMIT: txn_offset_commit,
}
