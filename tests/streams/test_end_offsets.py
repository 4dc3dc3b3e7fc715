"""End offsets while some partitions have no leader."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafkaclient.errors import KafkaTimeoutError
from kafkaclient.streams.runtime import topics
from kafkaclient.streams.runtime.topics import end_offsets
from kafkaclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

A, B = (TopicPartition("app-counts-changelog", number) for number in (0, 1))


class FakeAdmin:
    """Repeats its last answer."""

    def __init__(self, *answers: dict[TopicPartition, int]) -> None:
        self.answers = list(answers)

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], *, read_committed: bool
    ) -> dict[TopicPartition, int]:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


async def test_end_offsets_waits_for_a_changelog_without_leader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without the wait, the leader would treat the changelog as lost."""
    monkeypatch.setattr(topics, "_POLL_INTERVAL_S", 0)
    admin = FakeAdmin({A: 5}, {A: 6, B: 7})
    assert await end_offsets(admin, [A, B]) == {A: 6, B: 7}  # type: ignore[arg-type]


async def test_the_error_names_a_changelog_that_stays_without_leader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topics, "_POLL_INTERVAL_S", 0)
    monkeypatch.setattr(topics, "_LEADER_TIMEOUT_S", 0.01)
    with pytest.raises(KafkaTimeoutError, match=r"changelog-1\. They are deleted") as raised:
        await end_offsets(FakeAdmin({A: 5}), [A, B])  # type: ignore[arg-type]
    assert raised.value.retriable
