"""The interface of an API of the fake cluster, and what several responses have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Sequence

    from kafkaclient.testing.fake.interceptors import Request
    from kafkaclient.testing.fake.state import ClusterState
    from kafkaclient.wire.api import ApiKey

Fields: TypeAlias = dict[str, Any]
"""The fields of a response, by the schema's names in snake case."""


def _only_the_code(_: Request, error_code: int) -> Fields:
    return {"error_code": error_code}


class Api(NamedTuple):
    """How the fake brokers implement one API."""

    key: ApiKey
    versions: tuple[int, int]
    """The oldest and the newest version that the fake implements."""
    answer: Callable[[ClusterState, Request], Fields | asyncio.Future[Fields]]
    """Handles a request. A future: the answer depends on requests of other clients."""
    refuse: Callable[[Request, int], Fields] = _only_the_code
    """The response with the same error code for all parts of a request."""


def by_partition(
    topics: Iterable[Any],
    answer: Callable[[Any, Any], Fields],
    *,
    identity: Sequence[str] = ("name",),
    requested: str = "partitions",
    answered: str = "partitions",
) -> list[Fields]:
    """For each topic of a request its ``identity`` fields, and the fields of ``answer(topic,
    partition)`` for each of its partitions.

    ``requested`` and ``answered`` are the names of the lists of partitions."""
    return [
        {name: getattr(topic, name) for name in identity}
        | {answered: [answer(topic, partition) for partition in getattr(topic, requested)]}
        for topic in topics
    ]
