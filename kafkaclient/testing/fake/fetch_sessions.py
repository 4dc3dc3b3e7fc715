"""Fetch sessions of the fake brokers (KIP-227).

A session begins with a request of epoch 0, if its broker has a slot. Further requests list what has
changed and what to forget; their answers have the partitions with records, an error, a redirection
or another end than the last answer. Unlike Kafka, no session is evicted for another one.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from kafkaclient.broker_errors import ErrorCode
from kafkaclient.testing.fake.log import RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkaclient.testing.fake.interceptors import Request

_NO_SESSION = -1
_NEWS = {"error_code", "preferred_read_replica", "diverging_epoch"}


class FakeFetchSession:
    """The partitions of a session, and the ends that its answers have told."""

    def __init__(self, session_id: int) -> None:
        self.session_id = session_id
        self.epoch = 0
        """Of the next request."""
        self._wanted: dict[tuple[Any, Any, int], Any] = {}
        self._told: dict[tuple[Any, Any, int], Any] = {}

    def update(self, message: Any) -> None:
        """What a request lists and forgets."""
        self.epoch += 1
        for topic in message.topics:
            for each in topic.partitions:
                self._wanted[topic.topic, topic.topic_id, each.partition] = each
        for topic in message.forgotten_topics_data or ():
            for number in topic.partitions:
                self._wanted.pop((topic.topic, topic.topic_id, number), None)
                self._told.pop((topic.topic, topic.topic_id, number), None)

    def topics(self) -> Iterator[Any]:
        """The partitions, as a request lists them."""
        for (name, topic_id, _), each in self._wanted.items():
            yield SimpleNamespace(topic=name, topic_id=topic_id, partitions=[each])

    def answer(self, fields: dict[str, Any]) -> dict[str, Any]:
        """The answer, without partitions of which there is nothing new."""
        kept = []
        for topic in fields["responses"]:
            (partition,) = topic["partitions"]
            key = topic["topic"], topic["topic_id"], partition["partition_index"]
            end = None if partition.get("error_code") else partition["high_watermark"]
            is_new = bool(_NEWS & partition.keys() or partition.get("records"))
            if is_new or end is None or end != self._told.get(key):
                kept.append(topic)
            self._told[key] = end
        return fields | {"responses": kept, "session_id": self.session_id}


class FakeFetchSessions:
    """The sessions of all brokers. ``slots``: how many there may be together."""

    def __init__(self, slots: int = 1_000) -> None:
        self._slots = slots
        self._open: dict[tuple[int, int], FakeFetchSession] = {}
        self._last_id = 0

    def of(self, request: Request) -> FakeFetchSession | None:
        """The session of a request; None: it has none. Raises RefusedError."""
        message = request.message
        session_id, epoch = message.session_id or 0, message.session_epoch
        if epoch is None or epoch in (_NO_SESSION, 0):
            self._open.pop((request.broker, session_id), None)
            if epoch != 0 or len(self._open) >= self._slots:
                return None
            self._last_id += 1
            session = FakeFetchSession(self._last_id)
            self._open[request.broker, session.session_id] = session
        else:
            known = self._open.get((request.broker, session_id))
            if known is None:
                raise RefusedError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            if epoch != known.epoch:
                raise RefusedError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
            session = known
        session.update(message)
        return session
