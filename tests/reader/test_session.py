"""What a reader's requests tell of a broker's fetch session (KIP-227)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafkaclient.broker_errors import ErrorCode
from kafkaclient.reader import session as module
from kafkaclient.reader.session import FetchSession
from kafkaclient.wire.fetch import (
    FetchedPartition,
    FetchPartition,
    FetchResult,
    FetchTopic,
    SessionPart,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

OLD, NEW = b"o" * 16, b"n" * 16
NOTHING = memoryview(b"")


def topic(offsets: Mapping[int, int], topic_id: bytes = OLD) -> list[FetchTopic]:
    return [FetchTopic("t", topic_id, [FetchPartition(n, at, 100) for n, at in offsets.items()])]


def listed(topics: Sequence[FetchTopic]) -> dict[int, int]:
    return {each.partition: each.offset for found in topics for each in found.partitions}


def answer(
    *partitions: int, session_id: int = 7, error: int = 0, throttle_ms: int = 0, code: int = 0
) -> FetchResult:
    found = [
        FetchedPartition("t", n, code, 10 + n, 9, 0, (), -1, memoryview(b"r"), -1, -1)
        for n in partitions
    ]
    return FetchResult(found, error, throttle_ms, (), 100, session_id)


ALL = dict.fromkeys(range(20), 0)


def used() -> FetchSession:
    session = FetchSession()
    assert session.request(topic(ALL)) == (topic(ALL), SessionPart()), "it may be the only one"
    session.answered(answer(*ALL, session_id=0))
    return session


def begun() -> FetchSession:
    session = used()
    session.request(topic(ALL))
    session.answered(answer(*ALL))
    return session


def test_a_session_begins_with_all_partitions() -> None:
    session = used()
    topics = topic(ALL)
    assert session.request(topics) == (topics, SessionPart(0, 0))
    assert session.answered(answer(*ALL)) == answer(*ALL)
    changed, told = session.request(topic(ALL | {3: 5}))
    assert (listed(changed), told.session_id, told.epoch) == ({3: 5}, 7, 1)
    assert listed(told.topics or ()) == ALL | {3: 5}
    assert not told.forgotten


def test_few_partitions_need_no_session() -> None:
    session, few = FetchSession(), topic({0: 0, 1: 0})
    for _ in range(2):
        assert session.request(few) == (few, SessionPart())
        assert session.answered(answer(0, 1, session_id=0)) == answer(0, 1, session_id=0)


def test_what_a_response_leaves_out_has_no_records_and_the_same_end() -> None:
    session = begun()
    session.request(topic(ALL))
    found = {each.partition: each for each in session.answered(answer(4)).partitions}
    assert found.keys() == ALL.keys()
    assert (found[4].records, found[3].records) == (b"r", NOTHING)
    assert (found[3].high_watermark, found[3].last_stable_offset) == (13, 9)


def test_partitions_are_forgotten_and_come_back() -> None:
    session = begun()
    changed, told = session.request(topic({0: 0}))
    assert (listed(changed), listed(told.forgotten).keys()) == ({}, ALL.keys() - {0})
    session.answered(answer())
    changed, told = session.request(topic({0: 0, 1: 0}))
    assert (listed(changed), told.epoch, told.forgotten) == ({1: 0}, 2, [])
    assert [each.partition for each in session.answered(answer()).partitions] == [0]


def test_another_topic_with_the_same_name_is_another_part_of_the_session() -> None:
    session = begun()
    changed, told = session.request(topic(ALL, NEW))
    assert (listed(changed), changed[0].topic_id) == (ALL, NEW)
    assert (listed(told.forgotten), told.forgotten[0].topic_id) == (ALL, OLD)


@pytest.mark.parametrize("code", [6, 3, 100, 1, 74, 76])
def test_a_partition_with_an_error_has_no_answer_to_go_by(code: int) -> None:
    session = begun()
    session.request(topic(ALL))
    session.answered(answer(5, code=code))
    session.request(topic(ALL))
    assert 5 not in [each.partition for each in session.answered(answer()).partitions]


@pytest.mark.parametrize(
    ("code", "closes"),
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 7),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 7),
        (ErrorCode.UNKNOWN_SERVER_ERROR, 7),
        (None, 7),
    ],
)
def test_after_an_error_all_partitions_are_listed(code: int | None, closes: int) -> None:
    session = begun()
    session.request(topic(ALL))
    if code is None:
        session.failed()
    else:
        assert session.answered(answer(error=code)) == answer(error=code)
    assert session.request(topic(ALL)) == (topic(ALL), SessionPart(closes, 0))
    session.answered(answer(*ALL, session_id=8))
    assert session.request(topic(ALL))[1][:2] == (8, 1)


def test_a_broker_without_room_is_asked_again() -> None:
    session = used()
    for _ in range(2):
        assert session.request(topic(ALL)) == (topic(ALL), SessionPart(0, 0))
        assert session.answered(answer(*ALL, session_id=0)) == answer(*ALL, session_id=0)


def test_a_broker_may_close_the_session() -> None:
    session = begun()
    session.request(topic(ALL))
    assert len(session.answered(answer(4, session_id=0)).partitions) == 20
    assert session.request(topic(ALL)) == (topic(ALL), SessionPart(0, 0))


def test_a_throttled_response_tells_nothing_of_partitions() -> None:
    session = begun()
    session.request(topic(ALL))
    throttled = answer(throttle_ms=100)
    assert session.answered(throttled) == throttled
    assert session.request(topic(ALL))[1].epoch == 2


def test_the_epoch_begins_again_at_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LAST_EPOCH", 2)
    session, epochs = begun(), []
    for _ in range(4):
        epochs.append(session.request(topic(ALL))[1].epoch)
        session.answered(answer())
    assert epochs == [1, 2, 1, 2]
