"""Interceptors: what a test tells a fake broker to do with requests instead of its duty."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from uuid import UUID

    from kafkaclient.wire.codec import RequestFrame

__all__ = [
    "CLOSE",
    "CLOSE_ANSWER",
    "DROP",
    "DROP_ANSWER",
    "Answer",
    "Control",
    "Controls",
    "Delay",
    "Request",
    "delay",
    "delay_answer",
]


class Order(Enum):
    """Answers that are none."""

    DROP = "drop"
    CLOSE = "close"
    DROP_ANSWER = "drop answer"
    CLOSE_ANSWER = "close answer"


DROP = Order.DROP
"""The request has no effect and is never answered. A broker handles a connection's requests one
by one, so nothing after it is answered on this connection either."""
CLOSE = Order.CLOSE
"""The request has no effect; the connection is closed."""
DROP_ANSWER = Order.DROP_ANSWER
"""The request takes effect, and is never answered; then as with :data:`DROP`."""
CLOSE_ANSWER = Order.CLOSE_ANSWER
"""The request takes effect; the connection is closed instead of answering."""


class Delay(NamedTuple):
    """See :func:`delay` and :func:`delay_answer`."""

    seconds: float
    effect_first: bool
    answer: Order | int | bytes | Mapping[str, Any] | None


Answer: TypeAlias = Order | int | bytes | Mapping[str, Any] | Delay | None
"""What a control decides: an order above; an error code, which is put where the API's answer has
its codes; the fields of a response (as :func:`~kafkaclient.wire.codec.encode_response` takes
them); raw bytes to send, whatever they are; a delay; or None for the normal behaviour."""


def delay(seconds: float, answer: Order | int | bytes | Mapping[str, Any] | None = None) -> Delay:
    """Handle the request only after ``seconds``; requests behind it on its connection wait."""
    return Delay(seconds, effect_first=False, answer=answer)


def delay_answer(
    seconds: float, answer: Order | int | bytes | Mapping[str, Any] | None = None
) -> Delay:
    """Handle the request at once and answer ``seconds`` later; requests behind it wait."""
    return Delay(seconds, effect_first=True, answer=answer)


@dataclass(frozen=True, slots=True)
class Request:
    """A request that reached a broker: an entry of the journal, and what a control sees."""

    broker: int
    """Node id."""
    connection: int
    """Connections are counted from 1 in the whole cluster."""
    at: float
    """When it arrived, by the cluster's clock; it may have been handled later."""
    frame: RequestFrame
    size: int
    """Bytes of the whole request, its 4-byte size included."""
    topic_names: Mapping[UUID, str]
    """The cluster's topics, for requests that name them by id."""

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
        """kafka-python's request object: the schema's fields, in snake case."""
        return self.frame.message

    @property
    def batches(self) -> list[tuple[str, int, bytes]]:
        """Of a Produce request: (topic, partition, record batch)."""
        return [
            (
                topic.name or self.topic_names.get(topic.topic_id, ""),
                partition.index,
                bytes(partition.records or b""),
            )
            for topic in self.message.topic_data
            for partition in topic.partition_data
        ]


class Control:
    """A registered interceptor; ``hits`` counts the requests it decided about."""

    def __init__(
        self,
        api_key: int,
        decide: Callable[[Request], Answer] | Answer,
        *,
        keep: bool,
        broker: int | None,
    ) -> None:
        self.hits = 0
        self.active = True
        self._api_key = api_key
        self._decide = decide
        self._keep = keep
        self._broker = broker

    def remove(self) -> None:
        """Decide about no further request."""
        self.active = False

    def answer(self, request: Request) -> Answer:
        if not self.active or request.api_key != self._api_key:
            return None
        if self._broker is not None and request.broker != self._broker:
            return None
        answer = self._decide(request) if callable(self._decide) else self._decide
        if answer is not None:
            self.hits += 1
            self.active = self._keep
        return answer


class Controls:
    """All controls of a cluster; the one registered first that has an answer wins."""

    def __init__(self) -> None:
        self._controls: list[Control] = []

    def add(self, control: Control) -> None:
        self._controls.append(control)

    def answer(self, request: Request) -> Answer:
        answer = None
        for control in self._controls:
            answer = control.answer(request)
            if answer is not None:
                break
        self._controls = [control for control in self._controls if control.active]
        return answer
