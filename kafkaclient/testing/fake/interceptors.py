"""Interceptors: a test's function answers in place of a fake broker.

The methods for tests are :meth:`FakeCluster.control` (a request of any API),
:meth:`FakeCluster.fail_produce` and :meth:`FakeCluster.fail_fetch` (one partition of a request).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from uuid import UUID

    from kafkaclient.wire.codec import RequestFrame


class Action(Enum):
    """What a broker does instead of answering."""

    DROP = "drop"
    CLOSE = "close"
    DROP_ANSWER = "drop answer"
    CLOSE_ANSWER = "close answer"


DROP = Action.DROP
"""The request has no effect and is never answered. A broker handles the requests of a connection
one by one, so it answers no later request on this connection either."""
CLOSE = Action.CLOSE
"""The request has no effect; the connection is closed."""
DROP_ANSWER = Action.DROP_ANSWER
"""The request takes effect, and is never answered, as with :data:`DROP`."""
CLOSE_ANSWER = Action.CLOSE_ANSWER
"""The request takes effect; the connection is closed without an answer."""


class Delay(NamedTuple):
    """See :func:`delay` and :func:`delay_answer`."""

    seconds: float
    effect_first: bool
    answer: Action | int | bytes | Mapping[str, Any] | None


Answer: TypeAlias = Action | int | bytes | Mapping[str, Any] | Delay | None
"""The decision of an interceptor: an action above; an error code for all error fields of the
response (for an API that the fake cluster does not know, the connection is closed instead); the
fields of a response for :func:`~kafkaclient.wire.codec.encode_response`; raw bytes; a delay; or
None for the normal behavior."""


def delay(seconds: float, answer: Action | int | bytes | Mapping[str, Any] | None = None) -> Delay:
    """Handle the request after ``seconds``. Later requests on the connection wait."""
    return Delay(seconds, effect_first=False, answer=answer)


def delay_answer(
    seconds: float, answer: Action | int | bytes | Mapping[str, Any] | None = None
) -> Delay:
    """Handle the request at once, and answer ``seconds`` later. Later requests wait."""
    return Delay(seconds, effect_first=True, answer=answer)


@dataclass(frozen=True, slots=True)
class Request:
    """A request that a broker received, as in :attr:`FakeCluster.requests`."""

    broker: int
    """The node id of the broker."""
    connection: int
    """The number of the connection, which counts from 1 in the whole cluster."""
    at: float
    """The time of arrival by the cluster's clock. The broker may handle the request later."""
    frame: RequestFrame
    size: int
    """The bytes of the request, including the 4-byte size field."""
    topic_names: Mapping[UUID, str]
    """The names of the cluster's topics by id."""

    @property
    def api_key(self) -> int:
        return self.frame.api_key

    @property
    def version(self) -> int:
        return self.frame.version

    @property
    def client_id(self) -> str | None:
        return self.frame.client_id

    @property
    def message(self) -> Any:
        """kafka-python's request object, with the schema's fields in snake case."""
        return self.frame.message

    @property
    def batches(self) -> list[tuple[str, int, bytes]]:
        """The (topic, partition, record batch) tuples of a Produce request."""
        return [
            (
                topic.name or self.topic_names.get(topic.topic_id, ""),
                partition.index,
                bytes(partition.records or b""),
            )
            for topic in self.message.topic_data
            for partition in topic.partition_data
        ]


@dataclass(slots=True)
class Control:
    """An interceptor, as :meth:`FakeCluster.control` registers it."""

    api_key: int
    decide: Callable[[Request], Answer] | Answer
    keep: bool
    """Whether the interceptor stays after its first answer."""
    broker: int | None
    hits: int = 0
    """The number of requests that the interceptor answered."""
    active: bool = True

    def remove(self) -> None:
        """Intercept no more requests."""
        self.active = False

    def answer(self, request: Request) -> Answer:
        """What the cluster does with a request; not for applications."""
        if not self.active or request.api_key != self.api_key:
            return None
        if self.broker not in {None, request.broker}:
            return None
        answer = self.decide(request) if callable(self.decide) else self.decide
        if answer is not None:
            self.hits += 1
            self.active = self.keep
        return answer
