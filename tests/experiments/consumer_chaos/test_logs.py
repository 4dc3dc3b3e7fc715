"""What members write, and what coordinators write."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from experiments.consumer_chaos.commit_log import Commit, commit_of
from experiments.consumer_chaos.member_log import MemberLog, Processed, read_logs, read_stints
from kafkaclient.types import TopicPartition

if TYPE_CHECKING:
    from pathlib import Path


def test_a_member_writes_its_stints(tmp_path: Path) -> None:
    log = MemberLog(tmp_path / "instance-0-77.members")
    log.partitions("assigned", [TopicPartition("t", 0), TopicPartition("t", 1)])
    log.processed(5.0, "t", 1, 9, b"2:30", surely=True)
    log.partitions("revoked", [TopicPartition("t", 0)])
    log.stopped()
    log.partitions("assigned", [TopicPartition("t", 0)])
    log.close()
    stints = read_logs(tmp_path)
    assert [(s.member, s.partition, s.how) for s in stints] == [
        ("instance-0", 0, "revoked"),
        ("instance-0", 1, "stopped"),
        ("instance-0", 0, "died"),
    ]
    [record] = stints[1].records
    assert record == Processed(5.0, record.finished, True, 2, 9, 30)
    assert stints[1].began <= record.finished <= stints[1].ended < stints[2].ended == float("inf")


def test_a_record_in_hand_when_the_partition_was_lost_belongs_to_the_stint_before() -> None:
    """Also if the member has the partition again when the handler ends."""
    lines = ["assigned 1 t 0", "lost 2 t 0", "record 3 t 0 1.5 0 0 4 5"]
    again = "assigned 2.5 t 0"
    for given in (lines, [*lines[:2], again, lines[2]]):
        stint, *later = read_stints("a", given)
        assert (stint.how, stint.ended, len(stint.records)) == ("lost", 2.0, 1)
        assert not any(each.records for each in later)


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def test_commits_of_the_group() -> None:
    key = struct.pack(">h", 1) + text("g") + text("t") + struct.pack(">i", 3)
    value = struct.pack(">hqi", 3, 17, -1) + text("")
    assert commit_of(key, value, 5000, "g") == Commit(5.0, "t", 3, 17)
    assert commit_of(key, value, 5000, "other") is None
    assert commit_of(struct.pack(">h", 2) + text("g"), b"", 5000, "g") is None
