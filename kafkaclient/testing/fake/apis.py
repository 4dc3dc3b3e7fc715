"""The APIs that the fake speaks: API key -> the module that plays it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from kafkaclient.testing.fake import (
    api_versions,
    create_topics,
    init_producer_id,
    list_offsets,
    metadata,
    produce,
    sasl,
)
from kafkaclient.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkaclient.testing.fake.control import Request
    from kafkaclient.testing.fake.state import ClusterState

__all__ = ["APIS", "Api"]


class Api(Protocol):
    """What a module of one API has."""

    VERSIONS: tuple[int, int]
    """The oldest and the newest version that the module plays."""

    def answer(self, state: ClusterState, request: Request) -> dict[str, Any]:
        """Do what the request asks; returns the fields of the response."""
        ...

    def refuse(self, request: Request, error_code: int) -> dict[str, Any]:
        """The fields of a response that says the same error about everything asked."""
        ...


APIS: Mapping[int, Api] = {
    ApiKey.PRODUCE: produce,
    ApiKey.LIST_OFFSETS: list_offsets,
    ApiKey.METADATA: metadata,
    ApiKey.API_VERSIONS: api_versions,
    ApiKey.CREATE_TOPICS: create_topics,
    ApiKey.INIT_PRODUCER_ID: init_producer_id,
    ApiKey.SASL_HANDSHAKE: sasl.HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE: sasl.AUTHENTICATE,
}
