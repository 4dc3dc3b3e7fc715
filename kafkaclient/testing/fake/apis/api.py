"""The interface of an API of the fake cluster, and what the responses of several APIs share."""

from __future__ import annotations

from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from kafkaclient.testing.fake.log import RefusedError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping

    from kafkaclient.testing.fake.interceptors import Request
    from kafkaclient.testing.fake.state import ClusterState
    from kafkaclient.wire.api import ApiKey

Fields: TypeAlias = dict[str, Any]
"""The fields of a response, by the schema's names in snake case. ``encode_response`` adds the
schema's default for a field that is left out."""


class Parts(NamedTuple):
    """A list in a request, each part of which has its own outcome in the response."""

    requested: str
    """The name of the list in the request."""
    answered: str
    """The name of the list in the response."""
    identity: Mapping[str, str]
    """Field of the response -> field of the request, unless the request lists plain values."""
    inner: Parts | None = None
    """The list in each part, such as the partitions of a topic."""
    failed: Mapping[str, Any] = MappingProxyType({})
    """The fields of a part with an error that differ from the schema's defaults."""

    def answer(self, request: Any, outcome: Callable[..., Fields], *outer: Any) -> Fields:
        """The response's list. ``outcome`` gets a part, behind the parts that contain it, and
        returns its fields or raises RefusedError."""
        return {
            self.answered: [
                {name: getattr(part, its, part) for name, its in self.identity.items()}
                | self._outcome(part, outcome, *outer, part)
                for part in getattr(request, self.requested)
            ]
        }

    def _outcome(self, part: Any, outcome: Callable[..., Fields], *path: Any) -> Fields:
        if self.inner is not None:
            return self.inner.answer(part, outcome, *path)
        try:
            return outcome(*path)
        except RefusedError as refused:
            return {**self.failed, **refused.fields}


def topics(requested: str, answered: str, inner: Parts | None = None) -> Parts:
    """A list of topics by name, which may contain lists of partitions."""
    return Parts(requested, answered, {"name": "name"}, inner)


PARTITIONS = Parts("partitions", "partitions", {"partition_index": "partition_index"})
TOPIC_PARTITIONS = topics("topics", "topics", PARTITIONS)


class Api(NamedTuple):
    """How the fake brokers implement one API."""

    key: ApiKey
    versions: tuple[int, int]
    """The oldest and the newest version that the fake implements."""
    handle: Callable[[ClusterState, Request], Fields | asyncio.Future[Fields]]
    """The response. A future: it depends on requests of other clients. Raises RefusedError."""
    parts: Parts | None = None
    """Where the response has its error codes; None: at its top."""
    refused: Callable[[Request, Fields], Fields] | None = None
    """Where ``parts`` is not enough: the response with the same error everywhere."""

    def answer(self, state: ClusterState, request: Request) -> Fields | asyncio.Future[Fields]:
        """Handle a request."""
        try:
            return self.handle(state, request)
        except RefusedError as refused:
            return self.refuse(request, refused)

    def refuse(self, request: Request, refused: RefusedError) -> Fields:
        """The response with the same error for all parts of a request."""

        def outcome(*_: Any) -> Fields:
            raise refused

        if self.refused is not None:
            return self.refused(request, refused.fields)
        if self.parts is None:
            return refused.fields
        return self.parts.answer(request.message, outcome)


def each(
    key: ApiKey,
    versions: tuple[int, int],
    parts: Parts,
    outcome: Callable[..., Fields],
) -> Api:
    """An API whose response has nothing but the parts. ``outcome`` gets the state, the request, and
    a part behind the parts that contain it."""

    def handle(state: ClusterState, request: Request) -> Fields:
        return parts.answer(request.message, partial(outcome, state, request))

    return Api(key, versions, handle, parts)
