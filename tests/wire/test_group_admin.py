"""ListGroups, DeleteGroups and LeaveGroup in every version."""

from __future__ import annotations

import pytest

from kafkaclient.types import TopicPartition
from kafkaclient.wire.codec import encode_response
from kafkaclient.wire.groups import DescribedMember
from kafkaclient.wire.membership import (
    DeleteGroupsCall,
    GroupCodes,
    GroupListing,
    ListedGroups,
    ListGroupsCall,
    OffsetCodes,
    OffsetDeleteCall,
    RemoveMembersCall,
)
from tests.wire.test_admin import sent

MEMBERS = (
    DescribedMember("a", "c", "h", b"", b""),
    DescribedMember("b", "c", "h", b"", b"", "static"),
)
LISTED = {"group_id": "g", "protocol_type": "consumer"}
CALLS = [
    (
        ListGroupsCall(),
        {"groups": [LISTED | {"group_state": "Empty", "group_type": "classic"}]},
        ListedGroups(0, (GroupListing("g", "consumer", "Empty", "classic"),), 7),
    ),
    (
        DeleteGroupsCall(("g", "h")),
        {"results": [{"group_id": "g", "error_code": 0}, {"group_id": "h", "error_code": 68}]},
        GroupCodes({"g": 0, "h": 68}, 7),
    ),
    (
        OffsetDeleteCall("g", (TopicPartition("t", 0), TopicPartition("t", 3))),
        {
            "error_code": 0,
            "topics": [
                {
                    "name": "t",
                    "partitions": [
                        {"partition_index": 0, "error_code": 86},
                        {"partition_index": 3, "error_code": 0},
                    ],
                }
            ],
        },
        OffsetCodes({TopicPartition("t", 0): 86, TopicPartition("t", 3): 0}, 0, 7),
    ),
    (
        RemoveMembersCall("g", MEMBERS, "why"),
        {
            "error_code": 0,
            "members": [
                {"member_id": "a", "group_instance_id": None, "error_code": 25},
                {"member_id": "", "group_instance_id": "static", "error_code": 0},
            ],
        },
        GroupCodes({"": 0, "a": 25, "static": 0}, 7),
    ),
]


@pytest.mark.parametrize(
    ("call", "fields", "meaning", "version"),
    [
        pytest.param(*case, version, id=f"{type(case[0]).__name__}-{version}")
        for case in CALLS
        for version in range(case[0].min_version, case[0].max_version + 1)
    ],
)
def test_every_version_is_understood_both_ways(call, fields, meaning, version) -> None:
    assert sent(call, version) is not None
    throttled = {} if (version, type(call)) == (0, ListGroupsCall) else {"throttle_time_ms": 7}
    answer = encode_response(call.api_key, version, 1, **throttled, **fields)[8:]
    result = call.decode(version, answer)
    if version == call.max_version:
        assert result == meaning
        assert result.error_code == next(
            (code for code in getattr(meaning, "codes", {}).values() if code), 0
        )


def test_static_members_are_named_by_their_instance() -> None:
    found = sent(RemoveMembersCall("g", MEMBERS, "why"), 5).members
    assert [(m.member_id, m.group_instance_id, m.reason) for m in found] == [
        ("a", None, "why"),
        ("", "static", "why"),
    ]
