"""Which open transactions a task's next owner ends."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from kafkaclient.errors import AuthorizationError, KafkaTimeoutError
from kafkaclient.streams.group_protocol import SubscriptionInfo
from kafkaclient.streams.runtime.dead_transactions import DeadTransactions, transactional_id
from kafkaclient.testing.clock import virtual_time
from kafkaclient.wire.groups import ConsumerSubscription, DescribedGroup, DescribedMember
from kafkaclient.wire.transactions import TransactionListing, TxnState

if TYPE_CHECKING:
    from collections.abc import Iterable

OWN, ALIVE, DEAD = (UUID(int=number) for number in (1, 2, 3))


def listing(process: object, state: TxnState = TxnState.ONGOING) -> TransactionListing:
    return TransactionListing(f"app-{process}", 7, state)


def member(process: UUID) -> DescribedMember:
    info = SubscriptionInfo(process_id=process, task_offset_sums={}, unique_field=0, client_tags={})
    return DescribedMember("m", "c", "h", ConsumerSubscription(("t",), info.encode()).encode(), b"")


class FakeAdmin:
    def __init__(self) -> None:
        self.listed = [listing(OWN), listing(ALIVE), listing(DEAD), listing("x-" + str(DEAD))]
        self.states = ["Stable"]
        self.problems: list[Exception] = []
        self.fenced: list[str] = []
        self.more_members: tuple[DescribedMember, ...] = ()

    async def list_transactions(self, prefix: str, **_: float) -> list[TransactionListing]:
        if self.problems:
            raise self.problems.pop()
        return self.listed

    async def describe_group(self, group: str, **_: float) -> DescribedGroup:
        state = self.states.pop() if len(self.states) > 1 else self.states[0]
        members = (member(OWN), member(ALIVE), *self.more_members) if state == "Stable" else ()
        return DescribedGroup(group, 0, None, state, "consumer", "stream", members)

    async def fence_producers(self, names: Iterable[str], **_: float) -> dict[str, None]:
        self.fenced += names
        return dict.fromkeys(names)


async def search(admin: FakeAdmin) -> None:
    clock = asyncio.get_running_loop().time
    made = DeadTransactions(admin, "app", OWN, clock)  # type: ignore[arg-type]
    made.search()
    made.search()
    await asyncio.sleep(60)
    await made.close()


@virtual_time
async def test_only_processes_that_are_no_members_are_fenced() -> None:
    admin = FakeAdmin()
    await search(admin)
    assert admin.fenced == [transactional_id("app", DEAD)]


@virtual_time
async def test_members_are_unknown_while_the_group_rebalances() -> None:
    admin = FakeAdmin()
    admin.states = ["Stable", "CompletingRebalance", "PreparingRebalance"]
    admin.problems = [KafkaTimeoutError("no answer")]
    await search(admin)
    assert set(admin.fenced) == {transactional_id("app", DEAD)}


@pytest.mark.parametrize("data", [b"\0\0\0\x63\0\0\0\x63", b"\0"], ids=["newer", "unreadable"])
def test_nobody_is_fenced_if_a_member_may_be_any_process(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    @virtual_time
    async def story() -> None:
        admin = FakeAdmin()
        subscription = ConsumerSubscription(("t",), data).encode()
        admin.more_members = (DescribedMember("m2", "c", "h", subscription, b""),)
        await search(admin)
        assert admin.fenced == []

    story()
    assert "cannot be ended here" in caplog.text


@virtual_time
async def test_transactions_that_have_ended_are_left_alone() -> None:
    admin = FakeAdmin()
    admin.listed[2] = listing(DEAD, TxnState.COMPLETE_ABORT)
    await search(admin)
    assert admin.fenced == []


@pytest.mark.parametrize("how", ["refused", "hidden"])
def test_missing_permissions_are_named_once(how: str, caplog: pytest.LogCaptureFixture) -> None:
    @virtual_time
    async def story() -> None:
        admin = FakeAdmin()
        if how == "refused":
            admin.problems = [AuthorizationError("no"), AuthorizationError("no")]
        else:
            admin.listed = []  # brokers list only what the client may describe
        await search(admin)

    story()
    assert caplog.text.count("wait for transaction.timeout.ms") == 1
