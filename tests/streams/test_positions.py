"""Publishing the positions of standbys and warm-ups."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from uuid import UUID

from kafkaclient.errors import KafkaError
from kafkaclient.streams import positions as module
from kafkaclient.streams.positions import positions_group, publish_positions
from kafkaclient.types import TopicPartition

if TYPE_CHECKING:
    import pytest

A = TopicPartition("app-s-changelog", 0)


class FakeAdmin:
    """Fails the calls with these numbers, counted from 1."""

    def __init__(self, fails: set[int]) -> None:
        self.fails = fails
        self.calls: list[tuple[str, dict[TopicPartition, int]]] = []
        self.opened = 0

    async def __aenter__(self) -> FakeAdmin:
        self.opened += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        """There is nothing to close."""

    async def alter_offsets(self, group: str, offsets: dict[TopicPartition, int]) -> None:
        self.calls.append((group, offsets))
        if len(self.calls) in self.fails:
            raise KafkaError("not now")


async def published(
    seen: list[dict[TopicPartition, int]], monkeypatch: pytest.MonkeyPatch, fails: set[int]
) -> FakeAdmin:
    monkeypatch.setattr(module, "_PUBLISH_INTERVAL_S", 0)
    monkeypatch.setattr(module, "_RETRY_AFTER_S", 0)
    admin, rest = FakeAdmin(fails), iter(seen)
    over = asyncio.Event()

    def positions() -> dict[TopicPartition, int]:
        found = next(rest, None)
        if found is None:
            over.set()
        return found or {}

    publishing = asyncio.create_task(publish_positions(lambda: admin, "app-x", positions))
    await over.wait()
    publishing.cancel()
    return admin


async def test_changed_positions_are_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    admin = await published([{}, {A: 1}, {A: 1}, {A: 3}, {}], monkeypatch, set())
    assert admin.calls == [("app-x", {A: 1}), ("app-x", {A: 3})]


async def test_a_failure_is_logged_and_retried(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    admin = await published([{A: 1}, {A: 2}], monkeypatch, {1})
    assert [offsets for _, offsets in admin.calls] == [{A: 1}, {A: 2}]
    assert admin.opened == 2
    assert "not now" in caplog.text


def test_each_instance_has_its_own_group() -> None:
    assert positions_group("app", UUID(int=1)) == "app-00000000-0000-0000-0000-000000000001"
