"""What coordinators log about a group."""

from __future__ import annotations

from datetime import datetime

from experiments.counting.group_log import EVICTED, REBALANCED, GroupEvent, group_events

HEAD = "2026-11-23T15:51:21,374 INFO  [GroupCoordinator id=0 topic=__consumer_offsets partition=3] "
AT = datetime.fromisoformat("2026-11-23T15:51:21.374").timestamp()


def events(*lines: str) -> list[GroupEvent]:
    return group_events([f"{HEAD}{line}\n" for line in lines], "app")


def test_rebalances_and_evictions() -> None:
    assert events(
        "Preparing to rebalance group app in state PreparingRebalance with old generation 2",
        "Stabilized group app generation 3 with 1 members. (...)",
        "Member aiokafka-1 in group app has failed, removing it from the group. (...)",
        "Group app removed dynamic members who haven't joined: [a]. (...)",
    ) == [GroupEvent(REBALANCED, AT), GroupEvent(EVICTED, AT), GroupEvent(EVICTED, AT)]


def test_other_groups_and_members_that_leave_are_no_events() -> None:
    assert not events(
        "Stabilized group app-0f3e generation 3 with 1 members. (...)",
        "Member aiokafka-1 in group other has failed, removing it from the group. (...)",
        "[Group app] Member aiokafka-1 has left group through explicit `LeaveGroup` request",
    )
