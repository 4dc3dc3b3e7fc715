"""The leader's assignments for its members."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

import pytest

from kafkaclient.streams import AssignmentConfigs, TaskId
from kafkaclient.streams.declarations import Topic
from kafkaclient.streams.group_protocol import (
    NO_REBALANCE,
    AssignmentInfo,
    HostInfo,
    SubscriptionInfo,
)
from kafkaclient.streams.leader import MemberAssignment, compute_assignments
from kafkaclient.streams.tasks import LATEST_OFFSET
from kafkaclient.streams.topology import Processor, Topology
from kafkaclient.types import TopicPartition
from kafkaclient.wire.groups import ConsumerSubscription
from tests.streams.fakes import topology_of
from tests.streams.group import process

if TYPE_CHECKING:
    from collections.abc import Mapping


PROBING_MS = 1_700_000_600_000
FOLLOW_UP_MS = 1_700_000_010_000
TASKS = [TaskId(0, number) for number in range(4)]
ENDS = dict.fromkeys(TASKS, 50_000)


async def nothing(record: object, store: object, emit: object) -> None:
    """Nothing is processed here."""


def topology() -> Topology:
    return topology_of(nothing)


def subscription(number: int, sums: dict[TaskId, int], **more: object) -> bytes:
    return SubscriptionInfo(process_id=process(number), task_offset_sums=sums, **more).encode()  # type: ignore[arg-type]


def led(
    members: dict[str, bytes | None],
    ends: dict[TaskId, int] | None = ENDS,
    partitions: int = 4,
    owned: Mapping[str, tuple[TopicPartition, ...]] = MappingProxyType({}),
    **configs: int,
) -> dict[str, MemberAssignment]:
    return compute_assignments(
        {
            member: ConsumerSubscription(("words",), data, owned.get(member, ()))
            for member, data in members.items()
        },
        topology(),
        {"words": partitions},
        ends,
        AssignmentConfigs(**configs),
        PROBING_MS,
        FOLLOW_UP_MS,
    )


def active(answer: MemberAssignment) -> list[int]:
    return [task.partition for task in answer.info.active_tasks]


def standby(answer: MemberAssignment) -> list[int]:
    return sorted(task.partition for task in answer.info.standby_tasks)


def test_a_single_member_gets_all_tasks() -> None:
    (answer,) = led({"a": subscription(1, {})}).values()
    assert answer.partitions == [TopicPartition("words", number) for number in range(4)]
    assert active(answer) == [0, 1, 2, 3]
    assert answer.info.next_rebalance_ms == NO_REBALANCE


def test_a_new_member_warms_up_and_all_members_get_the_probing_time() -> None:
    members = {"a": subscription(1, dict.fromkeys(TASKS, LATEST_OFFSET)), "b": subscription(2, {})}
    answers = led(members)
    assert active(answers["a"]) == [0, 1, 2, 3]
    assert active(answers["b"]) == []
    assert standby(answers["b"]) == [1, 3]
    assert {answer.info.next_rebalance_ms for answer in answers.values()} == {PROBING_MS}
    caught_up = {"a": members["a"], "b": subscription(2, {TASKS[1]: 49_000, TASKS[3]: 50_000})}
    answers = led(caught_up)
    assert (active(answers["a"]), active(answers["b"])) == ([0, 2], [1, 3])
    assert {answer.info.next_rebalance_ms for answer in answers.values()} == {NO_REBALANCE}


def test_what_another_member_owns_is_a_standby_until_it_is_given_up() -> None:
    members = {
        "a": subscription(1, dict.fromkeys(TASKS, LATEST_OFFSET)),
        "b": subscription(2, {TASKS[1]: 49_000, TASKS[3]: 50_000}),
    }
    all_partitions = tuple(TopicPartition("words", number) for number in range(4))
    first = led(members, owned={"a": all_partitions})
    assert (active(first["a"]), active(first["b"])) == ([0, 2], [])
    assert standby(first["b"]) == [1, 3], "it keeps its copies"
    assert all(p.partition in (0, 2) for p in first["a"].partitions)
    second = led(members, owned={"a": all_partitions[::2]})
    assert (active(second["a"]), active(second["b"])) == ([0, 2], [1, 3])


def test_a_standby_takes_over_when_the_active_client_is_gone() -> None:
    answers = led({"b": subscription(2, dict.fromkeys(TASKS, 49_999))}, num_standby_replicas=1)
    assert active(answers["b"]) == [0, 1, 2, 3]
    assert standby(answers["b"]) == []


def test_two_consumers_of_a_process_share_its_tasks() -> None:
    answers = led({"a": subscription(1, {}), "b": subscription(1, {})})
    assert sorted(active(answers["a"]) + active(answers["b"])) == [0, 1, 2, 3]
    assert len(active(answers["a"])) == 2


def test_standbys_come_with_their_changelogs() -> None:
    members = {"a": subscription(1, ENDS), "b": subscription(2, ENDS)}
    answers = led(members, num_standby_replicas=1)
    assert answers["a"].info.standby_tasks[TASKS[1]] == {TopicPartition("app-counts-changelog", 1)}


def test_without_end_offsets_tasks_stay_and_another_rebalance_follows() -> None:
    members = {
        "a": subscription(1, {TASKS[0]: LATEST_OFFSET, TASKS[1]: LATEST_OFFSET, TASKS[2]: 7}),
        "b": subscription(2, {TASKS[2]: LATEST_OFFSET, TASKS[0]: 7}),
    }
    answers = led(members, ends=None)
    assert active(answers["a"])[:2] == [0, 1]
    assert 2 in active(answers["b"])
    assert sorted(active(answers["a"]) + active(answers["b"])) == [0, 1, 2, 3]
    assert answers["a"].info.next_rebalance_ms == PROBING_MS


@pytest.mark.parametrize("bad", [None, b"", b"\0\0\0\x0b\0", b"\xff" * 40])
def test_an_unreadable_member_gets_nothing_and_the_others_their_tasks(bad: bytes | None) -> None:
    answers = led({"a": subscription(1, {}), "b": bad})
    assert active(answers["a"]) == [0, 1, 2, 3]
    assert (answers["b"].partitions, answers["b"].info.error_code) == ([], 3)


def test_a_member_with_other_processors_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """It would wait for ever for tasks of its topics."""
    answers = compute_assignments(
        {
            "a": ConsumerSubscription(("words",), subscription(1, {})),
            "b": ConsumerSubscription(("lines",), subscription(2, {})),
        },
        topology(),
        {"words": 4},
        ENDS,
        AssignmentConfigs(),
        PROBING_MS,
        FOLLOW_UP_MS,
    )
    assert active(answers["a"]) == [0, 1, 2, 3]
    assert (answers["b"].partitions, answers["b"].info.error_code) == ([], 3)
    assert "member b reads the topics ['lines']" in caplog.text


def test_a_newer_member_gets_this_version() -> None:
    answers = led({"a": subscription(1, {}), "b": b"\0\0\0\x0c\0\0\0\x0c whatever"})
    assert (answers["b"].info.version, answers["b"].info.error_code) == (11, 0)
    assert answers["b"].partitions == []
    assert active(answers["a"]) == [0, 1, 2, 3]


def test_only_newer_members_get_nothing() -> None:
    (answer,) = led({"b": b"\0\0\0\x0c\0\0\0\x0c"}).values()
    assert answer.partitions == []


@pytest.mark.parametrize(
    ("partitions", "ends", "error", "code"),
    [
        (0, ENDS, 0, 1),  # the topic is not there
        (5, ENDS, 0, 3),  # it has grown, its changelog has not
        (4, ENDS, 4, 4),  # a member wants an end of all
    ],
)
def test_group_errors_go_to_all_members(
    partitions: int, ends: dict[TaskId, int], error: int, code: int
) -> None:
    members: dict[str, bytes | None] = {
        "a": subscription(1, {}),
        "b": subscription(2, {}, error_code=error),
    }
    answers = led(members, ends, partitions)
    assert {answer.info.error_code for answer in answers.values()} == {code}
    assert all(not answer.partitions for answer in answers.values())


async def nothing_stateless(record: object, emit: object) -> None:
    """Nothing is processed here."""


def test_stateless_tasks_have_neither_lags_nor_copies() -> None:
    stateless = Processor(topics=(Topic("words"), Topic("more")), process=nothing_stateless)
    members = {
        name: ConsumerSubscription(("words", "more"), subscription(number, {}))
        for number, name in enumerate("ab")
    }
    answers = compute_assignments(
        members,
        Topology("app").with_processor(stateless),
        {"words": 4, "more": 2},
        {},
        AssignmentConfigs(num_standby_replicas=1),
        PROBING_MS,
        FOLLOW_UP_MS,
    )
    found = sorted(partition for answer in answers.values() for partition in answer.partitions)
    assert found == [("more", 0), ("more", 1), *(("words", number) for number in range(4))]
    for answer in answers.values():
        assert (len(set(answer.info.active_tasks)), answer.info.standby_tasks) == (2, {})
        assert answer.info.next_rebalance_ms == NO_REBALANCE


def test_members_learn_which_instance_has_which_partitions() -> None:
    owned = {"a": tuple(TopicPartition("words", number) for number in range(4))}
    answers = led(
        {
            "a": subscription(1, dict.fromkeys(TASKS, LATEST_OFFSET), user_end_point="h1:1"),
            "b": subscription(2, dict.fromkeys(TASKS, 50_000), user_end_point="[::1]:2"),
            "c": subscription(3, {}),
            "d": subscription(4, {}, user_end_point="nonsense"),
        },
        owned=owned,
        num_standby_replicas=1,
    )
    told = answers["a"].info
    assert all(
        (each.info.hosts, each.info.standby_hosts) == (told.hosts, told.standby_hosts)
        for each in answers.values()
    )
    one, two = HostInfo("h1", 1), HostInfo("::1", 2)
    assert told.hosts.keys() == told.standby_hosts.keys() == {one, two}
    # A task that moves counts for its new owner.
    moving = set(standby(answers["b"]))
    assert {p.partition for p in told.hosts[two]} <= moving
    assert told.hosts[one] == set(answers["a"].partitions)
    assert {p.partition for p in told.hosts[one]} == set(active(answers["a"]))
    assert not told.hosts[one] & told.hosts[two]
    assert AssignmentInfo.decode(answers["a"].info.encode()) == answers["a"].info


def test_a_withheld_task_plans_a_rebalance() -> None:
    """Its owner may have restarted, and not know that it was to give the task up."""
    owned = {"a": tuple(TopicPartition("words", number) for number in range(4))}
    members = {"a": subscription(1, dict.fromkeys(TASKS, LATEST_OFFSET)), "b": subscription(2, {})}
    ends = dict.fromkeys(TASKS, 0)
    found = led(members, ends, owned=owned)
    assert {answer.info.next_rebalance_ms for answer in found.values()} == {FOLLOW_UP_MS}
    assert {answer.info.next_rebalance_ms for answer in led(members, ends).values()} == {
        NO_REBALANCE
    }
