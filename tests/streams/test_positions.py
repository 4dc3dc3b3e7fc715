"""Publishing the positions of standbys and warm-ups, and deleting the groups of gone instances."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from kafkaclient.errors import KafkaError
from kafkaclient.streams.positions import (
    PositionsPublisher,
    is_positions_group,
    member_processes,
    positions_group,
)
from kafkaclient.types import TopicPartition
from kafkaclient.wire.membership import GroupListing
from tests.streams.test_description import TASKS, group

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafkaclient.wire.groups import DescribedGroup

TP = TopicPartition("app-s-changelog", 0)
A, B, GONE = UUID(int=1), UUID(int=2), UUID(int=3)


class FakeAdmin:
    """Fails the commits with these numbers, counted from 1."""

    def __init__(self, fails: set[int]) -> None:
        self.fails = fails
        self.commits: list[tuple[str, dict[TopicPartition, int]]] = []
        self.opened = 0
        self.deleted: list[str] = []
        self.described = group({A: dict.fromkeys(TASKS, -2), B: {}})

    async def __aenter__(self) -> FakeAdmin:
        self.opened += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        """There is nothing to close."""

    async def alter_offsets(self, group: str, offsets: dict[TopicPartition, int]) -> None:
        self.commits.append((group, offsets))
        if len(self.commits) in self.fails:
            raise KafkaError("not now")

    async def describe_group(self, name: str) -> DescribedGroup:
        assert name == "app"
        return self.described

    async def list_groups(self) -> list[GroupListing]:
        processes = (A, B, GONE)
        names = ["app", f"app-2-{GONE}", *(positions_group("app", each) for each in processes)]
        return [GroupListing(name, "", "Empty", "classic") for name in names]

    async def delete_groups(self, groups: Iterable[str]) -> dict[str, KafkaError | None]:
        self.deleted += groups
        return dict.fromkeys(groups)


class Over(BaseException):
    """There are no more positions."""


async def published(
    seen: Iterable[dict[TopicPartition, int]],
    fails: Iterable[int] = (),
    process: UUID = A,
    prepare: Callable[[FakeAdmin], object] = lambda _: None,
) -> FakeAdmin:
    """Publish one of ``seen`` a second."""
    admin, rest, now = FakeAdmin(set(fails)), iter(seen), 0.0
    prepare(admin)

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        await asyncio.sleep(0)

    def positions() -> dict[TopicPartition, int]:
        found = next(rest, None)
        if found is None:
            raise Over
        return found

    publisher = PositionsPublisher(
        lambda: admin, "app", process, positions, clock=lambda: now, sleep=sleep
    )
    with pytest.raises(Over):
        await publisher.run()
    await publisher.close()
    return admin


async def test_changed_positions_are_committed() -> None:
    admin = await published([{}, {TP: 1}, {TP: 1}, {TP: 3}, {}])
    own = positions_group("app", A)
    assert admin.commits == [(own, {TP: 1}), (own, {TP: 3})]
    assert admin.deleted == [own]  # at the end


async def test_without_copies_there_is_no_group() -> None:
    admin = await published([{}, {}])
    assert (admin.commits, admin.deleted) == ([], [])


async def test_unchanged_positions_are_committed_again() -> None:
    """Another instance may have deleted the group, while this one was not a member."""
    admin = await published([{TP: 1}] * 62)
    assert len(admin.commits) == 3


async def test_a_failure_is_logged_and_retried(caplog: pytest.LogCaptureFixture) -> None:
    admin = await published([{TP: 1}, {TP: 2}], fails=[1])
    assert [offsets for _, offsets in admin.commits] == [{TP: 1}, {TP: 2}]
    assert admin.opened == 3
    assert "not now" in caplog.text


async def test_one_instance_deletes_the_groups_of_gone_instances() -> None:
    minute: list[dict[TopicPartition, int]] = [{}] * 61
    assert (await published(minute)).deleted == [positions_group("app", GONE)]
    assert (await published(minute, process=B)).deleted == []


@pytest.mark.parametrize("state", ["PreparingRebalance", "Empty"])
async def test_nothing_is_deleted_while_the_members_are_not_known(state: str) -> None:
    def prepare(admin: FakeAdmin) -> None:
        admin.described = admin.described._replace(state=state)

    assert (await published([{}] * 61, prepare=prepare)).deleted == []


def test_members_of_another_version_are_not_known() -> None:
    known = group({A: {}, B: {}})
    assert member_processes(known) == {A, B}
    odd = known.members[0]._replace(metadata=b"\0")
    assert member_processes(known._replace(members=(odd, known.members[1]))) is None


def test_each_instance_has_its_own_group() -> None:
    own = positions_group("app", A)
    assert own == "app-00000000-0000-0000-0000-000000000001"
    assert is_positions_group(own, "app")
    assert not is_positions_group(own, "ap")
    assert not is_positions_group(f"app-2-{A}", "app")
    assert not is_positions_group("app", "app")
