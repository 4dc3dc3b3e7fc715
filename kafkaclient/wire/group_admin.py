"""The calls that administer groups: ListGroups, DeleteGroups, and LeaveGroup for other members."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkaclient.wire.api import ApiKey
from kafkaclient.wire.codec import CodecCall

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkaclient.wire.groups import DescribedMember


class GroupListing(NamedTuple):
    """A group of a coordinator. ``state`` and ``kind`` are Kafka's names (``Empty``, ``classic``);
    empty if the broker is too old to send them."""

    group_id: str
    protocol_type: str
    state: str
    kind: str


class ListedGroups(NamedTuple):
    """The groups of one coordinator."""

    error_code: int
    groups: tuple[GroupListing, ...]
    throttle_ms: int = 0


class GroupCodes(NamedTuple):
    """An error code for each group, or for each member, of the request; 0 means no error."""

    codes: Mapping[str, int]
    throttle_ms: int = 0

    @property
    def error_code(self) -> int:
        """The first error."""
        return next((code for code in self.codes.values() if code), 0)


@dataclass(frozen=True)
class ListGroupsCall(CodecCall[ListedGroups], api_key=ApiKey.LIST_GROUPS, versions=(0, 5)):
    """The groups that the broker coordinates."""

    def _fields(self) -> dict[str, Any]:
        return {"states_filter": [], "types_filter": []}

    def _result(self, message: Any) -> ListedGroups:
        groups = tuple(
            GroupListing(
                group.group_id,
                group.protocol_type,
                group.group_state or "",
                group.group_type or "",
            )
            for group in message.groups
        )
        return ListedGroups(message.error_code, groups, message.throttle_time_ms or 0)


@dataclass(frozen=True)
class DeleteGroupsCall(CodecCall[GroupCodes], api_key=ApiKey.DELETE_GROUPS, versions=(0, 2)):
    """Deletes groups without members, with their offsets. Must go to their coordinator."""

    groups: tuple[str, ...]

    def _fields(self) -> dict[str, Any]:
        return {"groups_names": list(self.groups)}

    def _result(self, message: Any) -> GroupCodes:
        codes = {each.group_id: each.error_code for each in message.results}
        return GroupCodes(codes, message.throttle_time_ms)


@dataclass(frozen=True)
class RemoveMembersCall(CodecCall[GroupCodes], api_key=ApiKey.LEAVE_GROUP, versions=(3, 5)):
    """Removes members from a classic group (KIP-345). Must go to its coordinator."""

    group_id: str
    members: tuple[DescribedMember, ...]
    reason: str = ""

    def _fields(self) -> dict[str, Any]:
        members = [
            # The coordinator finds a static member by its instance id.
            {
                "member_id": "" if member.group_instance_id else member.member_id,
                "group_instance_id": member.group_instance_id,
                "reason": self.reason,
            }
            for member in self.members
        ]
        return {"group_id": self.group_id, "members": members}

    def _result(self, message: Any) -> GroupCodes:
        codes = {
            each.group_instance_id or each.member_id: each.error_code for each in message.members
        }
        return GroupCodes({"": message.error_code, **codes}, message.throttle_time_ms)
