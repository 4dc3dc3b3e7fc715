"""The topics in use: what the brokers said of each, who waits for it, when to ask for it again."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from kafkaclient.broker_errors import broker_error, denied
from kafkaclient.cluster.view import impossible
from kafkaclient.errors import BrokerError, KafkaError, MetadataTimeoutError, UnknownTopicError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Container, Iterable

    from kafkaclient.cluster.view import ClusterView, TopicView
    from kafkaclient.config.limit import Limit
    from kafkaclient.wire.results import MetadataResult

__all__ = ["TopicInUse", "TopicsInUse", "no_metadata", "topic_error"]

_UNKNOWN_TOPIC = 3
_LEADER_NOT_AVAILABLE = 5


@dataclass(slots=True, eq=False)
class TopicInUse:
    """Times are seconds of the clock that is passed in."""

    last_used: float
    error: BrokerError | None = None
    """What the brokers last said was wrong with it."""
    failures: int = 0
    retry_at: float = 0.0
    waiters: dict[asyncio.Future[TopicView], int] = field(default_factory=dict)
    """In the order in which they came: so they go on, and records keep their order. With the
    number of the first request whose answer will do."""

    @property
    def code(self) -> int:
        return 0 if self.error is None else self.error.code or 0

    @property
    def is_hopeless(self) -> bool:
        """True when the brokers said what asking again is not going to change soon."""
        return self.error is not None and not self.error.retriable

    def fail(self, error_of_one: Callable[[], KafkaError]) -> None:
        """Whoever waits gets an error of his own."""
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_exception(error_of_one())
                waiter.exception()  # one cancelled in this very moment leaves no unretrieved error


class TopicsInUse:
    """``pause_s(failures)`` is how long a topic is left alone after so many failures in a row;
    ``max_idle_s`` after how long without use it is forgotten (KIP-526)."""

    def __init__(self, pause_s: Callable[[int], float], max_idle_s: float) -> None:
        self.by_name: dict[str, TopicInUse] = {}
        self._pause_s = pause_s
        self._max_idle_s = max_idle_s

    def missing(self, known: Container[str]) -> list[str]:
        """Those to fetch as soon as their own back-off allows."""
        return [
            name
            for name, topic in self.by_name.items()
            if name not in known and (topic.waiters or not topic.is_hopeless)
        ]

    def retry_at(self, names: Iterable[str]) -> float | None:
        """When the first of these may be asked for; None if there are none."""
        return min((self.by_name[name].retry_at for name in names), default=None)

    def note(self, result: MetadataResult, asked: list[str], view: ClusterView, now: float) -> bool:
        """Keep what the answer says is wrong with the topics asked for; True if that is news.
        ``view`` has taken up of the answer what can be."""
        codes = dict.fromkeys(asked, _UNKNOWN_TOPIC)
        absurd: dict[str, str] = {}
        for info in result.topics:
            codes[info.name] = info.error_code
            if info.error_code or view.told.get(info.name) is info:
                continue
            if info.name not in view.topics or impossible(info):
                codes[info.name] = _LEADER_NOT_AVAILABLE  # to be asked again, after a pause
                absurd[info.name] = impossible(info) or "partitions that are out of date"
        news = False
        for name, code in codes.items():
            topic = self.by_name.get(name)
            if topic is None:
                continue
            news |= code != topic.code
            if not code:
                topic.error, topic.failures, topic.retry_at = None, 0, 0.0
                continue
            topic.error = topic_error(name, code, absurd.get(name))
            topic.failures += 1
            topic.retry_at = now + self._pause_s(topic.failures)
            if not topic.error.retriable:
                topic.fail(partial(topic_error, name, code))
        return news

    def tell(self, view: TopicView, request: int) -> None:
        """Whoever waits for the topic, and is content with the answer to this request, goes on."""
        topic = self.by_name.get(view.name)
        if topic is None:
            return
        for waiter, least in topic.waiters.items():
            if least <= request and not waiter.done():
                waiter.set_result(view)

    def fail(self, error_of: Callable[[str], KafkaError]) -> None:
        """Nobody gets what he waits for; ``error_of(topic)`` is made for each."""
        for name, topic in self.by_name.items():
            topic.fail(partial(error_of, name))

    def forget_idle(self, now: float, release: Callable[[str], bool]) -> list[str]:
        """Which topics are not used any more. ``release(topic)`` may take a look at all its
        partitions: it is asked last."""
        forgotten = []
        for name, topic in list(self.by_name.items()):
            if topic.waiters:
                topic.last_used = now
            elif now - topic.last_used > self._max_idle_s:
                if release(name):
                    del self.by_name[name]
                    forgotten.append(name)
                else:
                    topic.last_used = now
        return forgotten


def topic_error(name: str, code: int, absurd: str | None = None) -> BrokerError:
    """What a broker said was wrong with a topic when it was asked for its metadata. ``absurd``: it
    said that nothing was, and told of partitions that cannot be."""
    advice = denied(code, "Describe", name)
    if absurd is not None:
        advice = f"the broker's answer is not used, because it has {absurd}"
    return broker_error(code, f"metadata of topic {name!r}", advice=advice)


def no_metadata(
    name: str, cause: KafkaError | None, limit: Limit, *, auto_create: bool
) -> MetadataTimeoutError:
    """For who has waited for a topic in vain; ``cause`` is what was in the way last."""
    if isinstance(cause, UnknownTopicError):
        advice = (
            "create the topic, or let the brokers do it (their auto.create.topics.enable)"
            if auto_create
            else "create the topic: allow_auto_create_topics is off"
        )
    elif isinstance(cause, BrokerError):
        advice = "look at the brokers' logs; a longer max.block.ms may bridge it"
    else:
        advice = "check that the brokers are up and can be reached from here"
    error = MetadataTimeoutError(
        f"topic {name!r}: no metadata within {limit}; last cause: "
        f"{cause or 'no answer from any broker yet'}; {advice}"
    )
    error.__cause__ = cause
    return error
