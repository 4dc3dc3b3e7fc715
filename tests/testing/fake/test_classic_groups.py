"""The group coordinator of the fake cluster, as JoinGroup and the other APIs call it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.testing.clock import virtual_time
from kafkaclient.testing.fake import ErrorCode
from kafkaclient.testing.fake.classic_groups import ClassicGroupCoordinator, GroupState, Joining
from kafkaclient.testing.fake.log import RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable

_SESSION_S, _REBALANCE_S = 10.0, 60.0


def _wish(member_id: str = "", instance_id: str | None = None, **changes: Any) -> Joining:
    usual: dict[str, Any] = {
        "member_id": member_id,
        "instance_id": instance_id,
        "client_id": "client",
        "protocol_type": "consumer",
        "protocols": {"range": b"topics"},
        "session_timeout_s": _SESSION_S,
        "rebalance_timeout_s": _REBALANCE_S,
        "needs_id": False,
    }
    return Joining(**(usual | changes))


async def _done(answer: Any) -> dict[str, Any]:
    return dict(await answer if isinstance(answer, asyncio.Future) else answer)


def _refused(call: Callable[..., object], *arguments: Any) -> ErrorCode:
    with pytest.raises(RefusedError) as caught:
        call(*arguments)
    return ErrorCode(caught.value.code)


async def _stable(
    coordinator: ClassicGroupCoordinator, *wishes: Joining
) -> tuple[list[str], dict[str, Any]]:
    """A group in which these are members; the leader's answer comes second."""
    joined = await _rebalanced(coordinator, *wishes)
    ids = [answer["member_id"] for answer in joined]
    leader = next(answer for answer in joined if answer["members"])
    assignments = {member: member.encode() for member in ids}
    generation = leader["generation_id"]
    syncing = [
        coordinator.sync("g", member, wish.instance_id, generation, assignments)
        for member, wish in zip(ids, wishes, strict=True)
    ]
    for member, answer in zip(ids, syncing, strict=True):
        assert (await _done(answer))["assignment"] == member.encode()
    return ids, leader


async def _rebalanced(
    coordinator: ClassicGroupCoordinator, *wishes: Joining
) -> list[dict[str, Any]]:
    """The last answers: whoever joined early joins again with its id, as consumers do."""
    ids: list[str] = []
    for wish in wishes:
        answer = coordinator.join("g", wish)
        for known, earlier in zip(ids, wishes, strict=False):
            coordinator.join("g", earlier._replace(member_id=known))
        ids.append((await _done(answer))["member_id"])
    again = [
        coordinator.join("g", wish._replace(member_id=known))
        for known, wish in zip(ids, wishes, strict=True)
    ]
    return [await _done(answer) for answer in again]


@virtual_time
async def test_members_get_the_assignments_of_their_leader() -> None:
    coordinator = ClassicGroupCoordinator()
    ids, leader = await _stable(coordinator, _wish(), _wish(), _wish())
    assert [member["member_id"] for member in leader["members"]] == ids
    assert leader["leader"] == ids[0]
    assert coordinator.groups["g"].state is GroupState.STABLE
    generation = leader["generation_id"]
    beat = coordinator.heartbeat
    beat("g", ids[1], None, generation)
    assert _refused(beat, "g", ids[1], None, generation - 1) == ErrorCode.ILLEGAL_GENERATION
    assert _refused(beat, "g", "stranger", None, 1) == ErrorCode.UNKNOWN_MEMBER_ID


@virtual_time
async def test_a_member_that_leaves_starts_a_rebalance() -> None:
    coordinator = ClassicGroupCoordinator()
    (first, second), leader = await _stable(coordinator, _wish(), _wish())
    generation = leader["generation_id"]
    coordinator.leave("g", first, None)
    assert _refused(coordinator.leave, "g", first, None) == ErrorCode.UNKNOWN_MEMBER_ID
    for call, *more in ((coordinator.heartbeat,), (coordinator.sync, {})):
        refused = _refused(call, "g", second, None, generation, *more)
        assert refused == ErrorCode.REBALANCE_IN_PROGRESS
    answer = await _done(coordinator.join("g", _wish(second)))
    assert (answer["leader"], answer["generation_id"]) == (second, generation + 1)


@virtual_time
async def test_a_silent_member_is_removed_after_its_session_timeout() -> None:
    coordinator = ClassicGroupCoordinator()
    (first, second), leader = await _stable(coordinator, _wish(), _wish())
    for _ in range(3):
        await asyncio.sleep(_SESSION_S / 2)
        with suppress(RefusedError):  # REBALANCE_IN_PROGRESS
            coordinator.heartbeat("g", first, None, leader["generation_id"])
    assert list(coordinator.groups["g"].members) == [first]
    assert coordinator.groups["g"].state is GroupState.JOINING
    await asyncio.sleep(_SESSION_S)
    assert coordinator.groups["g"].state is GroupState.EMPTY
    assert _refused(coordinator.join, "g", _wish(second)) == ErrorCode.UNKNOWN_MEMBER_ID


@virtual_time
async def test_a_rebalance_waits_for_members_up_to_their_rebalance_timeout() -> None:
    coordinator = ClassicGroupCoordinator()
    (first, second), leader = await _stable(
        coordinator, _wish(session_timeout_s=1000.0), _wish(session_timeout_s=1000.0)
    )
    joining = coordinator.join("g", _wish(first, protocols={"range": b"other topics"}))
    assert isinstance(joining, asyncio.Future)
    began = asyncio.get_running_loop().time()
    answer = await joining
    assert asyncio.get_running_loop().time() - began == _REBALANCE_S
    assert [member["member_id"] for member in answer["members"]] == [first]
    refused = _refused(coordinator.heartbeat, "g", second, None, leader["generation_id"])
    assert refused == ErrorCode.UNKNOWN_MEMBER_ID


@virtual_time
async def test_a_new_member_gets_its_id_before_it_joins() -> None:
    coordinator = ClassicGroupCoordinator()
    with pytest.raises(RefusedError) as caught:
        coordinator.join("g", _wish(needs_id=True))
    assert caught.value.code == ErrorCode.MEMBER_ID_REQUIRED
    member_id = caught.value.fields["member_id"]
    joined = await _done(coordinator.join("g", _wish(member_id, needs_id=True)))
    assert joined["member_id"] == member_id


@virtual_time
async def test_a_static_member_replaces_and_fences_its_predecessor() -> None:
    coordinator = ClassicGroupCoordinator()
    (old,), leader = await _stable(coordinator, _wish(instance_id="i"))
    joined = await _done(coordinator.join("g", _wish(instance_id="i", needs_id=True)))
    assert list(coordinator.groups["g"].members) == [joined["member_id"]]
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert _refused(coordinator.heartbeat, "g", old, "i", leader["generation_id"]) == fenced
    assert _refused(coordinator.join, "g", _wish(old, "i")) == fenced
    coordinator.leave("g", "", "i")


@virtual_time
async def test_members_agree_on_an_assignor() -> None:
    coordinator = ClassicGroupCoordinator()
    both = _wish(protocols={"sticky": b"s", "range": b"r"})
    _, leader = await _stable(coordinator, both, _wish())
    assert leader["protocol_name"] == "range"
    assert [member["metadata"] for member in leader["members"]] == [b"r", b"topics"]
    for other in (_wish(protocols={"sticky": b""}), _wish(protocol_type="connect")):
        refused = _refused(coordinator.join, "g", other)
        assert refused == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@virtual_time
async def test_who_may_commit_offsets() -> None:
    coordinator = ClassicGroupCoordinator()
    check = coordinator.check_commit
    check("g", "", None, -1)
    assert _refused(check, "g", "m", None, 3) == ErrorCode.ILLEGAL_GENERATION
    (member,), leader = await _stable(coordinator, _wish())
    generation = leader["generation_id"]
    check("g", member, None, generation)
    assert _refused(check, "g", "", None, -1) == ErrorCode.UNKNOWN_MEMBER_ID
    await _done(coordinator.join("g", _wish(member, protocols={"range": b"more"})))
    refused = _refused(check, "g", member, None, generation + 1)
    assert refused == ErrorCode.REBALANCE_IN_PROGRESS  # until the leader has assigned


@virtual_time
async def test_members_end_with_the_ports() -> None:
    coordinator = ClassicGroupCoordinator()
    (first, _), _ = await _stable(coordinator, _wish(), _wish())
    joining = coordinator.join("g", _wish(first, protocols={"range": b"other topics"}))
    coordinator.forget_members()
    assert (await _done(joining))["error_code"] == ErrorCode.UNKNOWN_MEMBER_ID
    await asyncio.sleep(2 * _REBALANCE_S)  # no timer is left that would look for them
    assert coordinator.groups == {}
    (only,), leader = await _stable(coordinator, _wish())
    assert leader["leader"] == only
