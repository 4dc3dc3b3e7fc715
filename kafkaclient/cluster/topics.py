"""The topics in use: errors, waiting callers, retries, and the ends of their logs."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol

from kafkaclient.broker_errors import ErrorCode, broker_error, denied
from kafkaclient.cluster.identity import impossible
from kafkaclient.errors import BrokerError, KafkaError, MetadataTimeoutError, UnknownTopicError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Iterable, Mapping

    from kafkaclient.cluster.view import ClusterView, TopicView
    from kafkaclient.config.kinds import Limit
    from kafkaclient.types import TopicPartition
    from kafkaclient.wire.api import MetadataResult


# --- The topics in use: their errors, the callers that wait for them ------------------------------


_UNKNOWN_SIZE = 10  # partitions of a topic that is not known yet


@dataclass(slots=True, eq=False)
class TopicInUse:
    """Times are in seconds of the client's clock."""

    last_used: float
    error: BrokerError | None = None
    """The topic's error in the last response."""
    failures: int = 0
    retry_at: float = 0.0
    waiters: dict[asyncio.Future[TopicView], int] = field(default_factory=dict)
    """Callers in their order, so that records keep their order. The number is the first refresh
    that answers the caller."""

    @property
    def code(self) -> int:
        return 0 if self.error is None else self.error.code or 0

    @property
    def is_permanent(self) -> bool:
        """Whether the error will not go away soon, so that another request does not help."""
        return self.error is not None and not self.error.retriable

    def fail(self, new_error: Callable[[], KafkaError]) -> None:
        """Give each waiting caller its own error."""
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_exception(new_error())
                waiter.exception()  # no "never retrieved" in the log if the caller was cancelled


class TopicsInUse:
    """``pause_s(failures)`` is the pause after consecutive failures. A topic that was not used for
    ``max_idle_s`` is forgotten (KIP-526). ``right`` is what the client needs on topics, as in ACLs.
    """

    def __init__(self, pause_s: Callable[[int], float], max_idle_s: float, right: str) -> None:
        self.by_name: dict[str, TopicInUse] = {}
        self._pause_s = pause_s
        self._max_idle_s = max_idle_s
        self._right = right

    def new_error(self, name: str) -> BrokerError:
        """The topic's error in the last response, for one more caller."""
        return topic_error(name, self.by_name[name].code, self._right)

    def missing(self, known: Container[str]) -> list[str]:
        """The topics to fetch as soon as their own backoff allows."""
        return [
            name
            for name, topic in self.by_name.items()
            if (topic.waiters and topic.error is not None and topic.error.retriable)
            or (name not in known and (topic.waiters or not topic.is_permanent))
        ]

    def retry_at(self, names: Iterable[str]) -> float | None:
        """When the first of these topics may be requested; None if there are none."""
        return min((self.by_name[name].retry_at for name in names), default=None)

    def note(self, result: MetadataResult, asked: list[str], view: ClusterView, now: float) -> bool:
        """Keep the errors in the response to a request for the topics ``asked``; True if an error
        has changed. ``view`` includes the response already.
        """
        codes: dict[str, int] = dict.fromkeys(asked, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        absurd: dict[str, str] = {}
        for info in result.topics:
            codes[info.name] = info.error_code
            if info.error_code or view.last_infos.get(info.name) is info:
                continue
            if info.name not in view.topics or impossible(info):
                codes[info.name] = ErrorCode.LEADER_NOT_AVAILABLE  # requested again after a pause
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
            topic.error = topic_error(name, code, self._right, absurd.get(name))
            topic.failures += 1
            topic.retry_at = now + self._pause_s(topic.failures)
            if not topic.error.retriable:
                topic.fail(partial(self.new_error, name))
        return news

    def resolve(self, view: TopicView, refresh: int) -> None:
        """Give the topic's view to the callers that this refresh answers."""
        topic = self.by_name.get(view.name)
        if topic is None:
            return
        for waiter, least in topic.waiters.items():
            if least <= refresh and not waiter.done():
                waiter.set_result(view)

    def fail(self, error_of: Callable[[str], KafkaError]) -> None:
        """Give all waiting callers their own ``error_of(topic)``."""
        for name, topic in self.by_name.items():
            topic.fail(partial(error_of, name))

    def forget_idle(
        self, now: float, release: Callable[[str], bool], max_idle_s: float | None = None
    ) -> list[str]:
        """Forget the topics that are idle and that ``release(topic)`` agrees to; their names.
        ``release`` is called last, because it may check all partitions.
        """
        max_idle_s = self._max_idle_s if max_idle_s is None else max_idle_s
        forgotten = []
        for name, topic in list(self.by_name.items()):
            if topic.waiters:
                topic.last_used = now
            elif now - topic.last_used > max_idle_s:
                if release(name):
                    del self.by_name[name]
                    forgotten.append(name)
                else:
                    topic.last_used = now
        return forgotten


def portions_of(names: Iterable[str], sizes: Mapping[str, int], most: int) -> list[list[str]]:
    """The topics, in portions with at most ``most`` partitions together, or of one topic. ``sizes``
    has the number of partitions by topic. Without topics there is one empty portion."""
    portions: list[list[str]] = [[]]
    size = 0
    for name in names:
        count = sizes.get(name, _UNKNOWN_SIZE)
        if portions[-1] and size + count > most:
            portions.append([])
            size = 0
        portions[-1].append(name)
        size += count
    return portions


def topic_error(name: str, code: int, right: str, absurd: str | None = None) -> BrokerError:
    """A topic's error in a Metadata response. ``right``: what the client needs on the topic, as in
    ACLs. ``absurd``: what is wrong with the partitions of a response without an error code.
    """
    advice = denied(code, "Describe", name, grant=right)
    if absurd is not None:
        advice = f"the broker's answer is not used, because it has {absurd}"
    error = broker_error(code, f"metadata of topic {name!r}", advice=advice)
    # A cluster that starts has too few brokers to create the topic. Java waits as well.
    error.retriable |= code == ErrorCode.INVALID_REPLICATION_FACTOR
    return error


def no_metadata(
    name: str, cause: KafkaError | None, limit: Limit, *, auto_create: bool
) -> MetadataTimeoutError:
    """The error after waiting for a topic; ``cause`` is the last failure."""
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


# --- Whether a log has become shorter: one low answer of one broker is not believed ---------------
# A broker that was paused or cut off, and does not know yet that another one leads the partition
# now, answers ListOffsets with its own, lower end. Its leader epoch is no proof: the metadata may
# come from the same broker.

_LOW_ANSWERS = 3  # in a row, before a log counts as shorter
_PAUSE_S = 1.0  # between them; a broker that goes on after a pause knows its leaders within ms


class FetchEnds(Protocol):
    """End offsets of partitions, from leaders of fresh metadata: by default the last stable
    offsets, else the high watermarks."""

    async def __call__(
        self, partitions: Collection[TopicPartition], *, read_committed: bool = True
    ) -> dict[TopicPartition, int]: ...


async def ends_from(
    fetch_ends: FetchEnds, known: Mapping[TopicPartition, int], *, read_committed: bool = True
) -> dict[TopicPartition, int]:
    """The partitions' end offsets, given an offset of each that its log has had.

    An end lower than the known offset is returned only if all ``_LOW_ANSWERS`` are so low: records
    were lost, or the topic was created again. With ``read_committed``, the known offset itself is
    returned while an open transaction begins before it. Raises as ``fetch_ends``.
    """
    found: dict[TopicPartition, int] = {}
    low = set(known)
    for answers in range(_LOW_ANSWERS):
        if answers:
            await asyncio.sleep(_PAUSE_S)
        found |= await fetch_ends(low, read_committed=read_committed)
        low = {tp for tp in low if found.get(tp, known[tp]) < known[tp]}
        if low and read_committed:
            for tp, end in (await fetch_ends(low, read_committed=False)).items():
                if end >= known[tp]:
                    found[tp] = known[tp]
                    low.discard(tp)
        if not low:
            break
    return found
