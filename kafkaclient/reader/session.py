"""Fetch sessions (KIP-227): a broker remembers which partitions a reader fetches."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, TypeAlias

from kafkaclient.broker_errors import ErrorCode
from kafkaclient.wire.fetch import NO_SESSION, FetchTopic, SessionPart

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafkaclient.wire.fetch import FetchedPartition, FetchPartition, FetchResult

    _Key: TypeAlias = tuple[str, bytes | None, int]

_LEAST_PARTITIONS = 10  # fewer are listed in about 300 bytes; brokers have 1,000 sessions
_LAST_EPOCH = 2**31 - 1


class FetchSession:
    """What one broker knows of a reader's partitions, from one request to the next.

    A request lists the partitions whose offset or epoch has changed, and those to forget; a
    response has those with records, errors or another end. A broker may have no room for a session,
    or forget it: then the next request lists all partitions again (Java: ``FetchSessionHandler``).
    """

    def __init__(self) -> None:
        self._session_id = 0
        self._epoch = 0
        """Of the next request; 0: it lists all partitions."""
        self._asked: Mapping[_Key, FetchPartition] = {}
        """The partitions of the last request, also those that it did not list."""
        self._answers: dict[_Key, FetchedPartition] = {}
        """The last answer of each partition, without records."""

    def request(self, topics: Sequence[FetchTopic]) -> tuple[Sequence[FetchTopic], SessionPart]:
        """What a request for these partitions lists, and what it tells of the session."""
        before = self._asked
        self._asked = asked = {
            (topic.name, topic.topic_id, each.partition): each
            for topic in topics
            for each in topic.partitions
        }
        if not self._epoch:
            self._answers = {}
            # The first request may be the only one, and the session would stay at the broker.
            is_short = not before or len(asked) < _LEAST_PARTITIONS
            without = is_short and not self._session_id
            return topics, NO_SESSION if without else SessionPart(self._session_id, 0)
        forgotten = {key: each for key, each in before.items() if key not in asked}
        for key in forgotten:
            self._answers.pop(key, None)
        changed = {key: each for key, each in asked.items() if before.get(key) != each}
        session = SessionPart(self._session_id, self._epoch, _topics(forgotten), topics)
        return _topics(changed), session

    def answered(self, result: FetchResult) -> FetchResult:
        """The response with all partitions. Those that it leaves out have no records, and the same
        end as before."""
        if result.error_code:
            self.failed(result.error_code)
            return result
        found = {(each.topic, each.partition): each for each in result.partitions}
        is_whole = not self._epoch
        if result.session_id:
            self._session_id, self._epoch = result.session_id, self._epoch % _LAST_EPOCH + 1
        else:  # the broker has no room, or has closed the session
            self._session_id = self._epoch = 0
        if (is_whole and not self._epoch) or (result.throttle_ms and not found):
            return result
        partitions = list(result.partitions)
        for key in self._asked:
            answer = found.get((key[0], key[2]))
            if answer is None:
                if key in self._answers:
                    partitions.append(self._answers[key])
            elif answer.error_code or answer.diverging_end >= 0 or answer.preferred_replica >= 0:
                self._answers.pop(key, None)  # the next response has it again
            else:
                self._answers[key] = answer._replace(records=_NOTHING, aborted=())
        return result._replace(partitions=partitions)

    def failed(self, code: int | None = None) -> None:
        """There was no answer, or an error: the next request closes the session, and begins one."""
        self._epoch = 0
        if code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self._session_id = 0


_NOTHING = memoryview(b"")


def _topics(partitions: Mapping[_Key, FetchPartition]) -> Sequence[FetchTopic]:
    grouped = groupby(partitions.items(), lambda item: item[0][:2])
    return [
        FetchTopic(name, topic_id, [each for _, each in items])
        for (name, topic_id), items in grouped
    ]
