"""Publishes how far an instance's standbys and warm-ups are, for ``streams describe``.

Members report positions to their leader only when they join. So each instance also commits the
positions as offsets of a group without members. Kafka's own tools can read them.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from typing import TYPE_CHECKING

from kafkaclient.errors import KafkaError, ProtocolError
from kafkaclient.streams.group_protocol import SubscriptionInfo, decode_subscription
from kafkaclient.time_limit import time_limit, why_given_up
from kafkaclient.wire.groups import subscription_in

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from uuid import UUID

    from kafkaclient.admin.admin import Admin
    from kafkaclient.types import TopicPartition
    from kafkaclient.wire.groups import DescribedGroup

_log = logging.getLogger(__name__)

_PUBLISH_INTERVAL_S = 1.0
_RENEW_INTERVAL_S = 30.0  # unchanged positions are committed again: the group may be deleted
_CLEAN_INTERVAL_S = 60.0
_RETRY_AFTER_S = 60.0
_CLOSE_TIMEOUT_S = 2.0

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def positions_group(application_id: str, process_id: UUID) -> str:
    """The group that holds the positions of an instance's standbys and warm-ups."""
    return f"{application_id}-{process_id}"


def is_positions_group(group: str, application_id: str) -> bool:
    """Whether the group is a :func:`positions_group` of the application."""
    prefix = f"{application_id}-"
    return group.startswith(prefix) and bool(_UUID.fullmatch(group.removeprefix(prefix)))


def member_processes(group: DescribedGroup) -> set[UUID] | None:
    """The process ids of an application's members. None: a member is not a streams application of
    this version."""
    found = set()
    for member in group.members:
        try:
            info = decode_subscription(subscription_in(member.metadata).user_data or b"")
        except ProtocolError:
            return None
        if not isinstance(info, SubscriptionInfo):
            return None
        found.add(info.process_id)
    return found


class PositionsPublisher:
    """Commits the positions of this instance's copies, and deletes the groups of instances that are
    gone. A failure is logged, and retried after a minute: no other part of the runtime needs the
    positions.

    The instance with the lowest process id cleans up for all.
    """

    def __init__(
        self,
        new_admin: Callable[[], Admin],
        application_id: str,
        process_id: UUID,
        positions: Callable[[], Mapping[TopicPartition, int]],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._new_admin = new_admin
        self._application_id = application_id
        self._process_id = process_id
        self._group = positions_group(application_id, process_id)
        self._positions = positions
        self._clock = clock
        self._sleep = sleep
        self._published: Mapping[TopicPartition, int] = {}

    async def run(self) -> None:
        """Publish changed positions every second; never returns."""
        while True:
            try:
                async with self._new_admin() as admin:
                    await self._publish(admin)
            except KafkaError as error:
                _log.warning(
                    "positions of standbys are not published to group %s: %s", self._group, error
                )
            await self._sleep(_RETRY_AFTER_S)

    async def _publish(self, admin: Admin) -> None:
        renew_at, clean_at = self._clock(), self._clock() + _CLEAN_INTERVAL_S
        while True:
            await self._sleep(_PUBLISH_INTERVAL_S)
            found, now = self._positions(), self._clock()
            if found and (found != self._published or now >= renew_at):
                await admin.alter_offsets(self._group, found)
                self._published, renew_at = found, now + _RENEW_INTERVAL_S
            if now >= clean_at:
                clean_at = now + _CLEAN_INTERVAL_S
                await self._delete_stale(admin)

    async def _delete_stale(self, admin: Admin) -> None:
        described = await admin.describe_group(self._application_id)
        members = member_processes(described) if described.state == "Stable" else None
        if not members or self._process_id != min(members):
            return
        wanted = {positions_group(self._application_id, process) for process in members}
        stale = [
            group.group_id
            for group in await admin.list_groups()
            if is_positions_group(group.group_id, self._application_id)
            and group.group_id not in wanted
        ]
        for group, error in (await admin.delete_groups(stale)).items() if stale else ():
            if error is None:
                _log.info("deleted group %s: its instance is gone", group)
            else:
                _log.info("group %s of an instance that is gone remains: %s", group, error)

    async def close(self) -> None:
        """Delete this instance's positions group. Call it when :meth:`run` has ended, and the
        instance ends as planned."""
        if not self._published:
            return
        try:
            async with time_limit(_CLOSE_TIMEOUT_S), self._new_admin() as admin:
                await admin.delete_groups([self._group])
        except (KafkaError, TimeoutError) as error:
            why = why_given_up(error, _CLOSE_TIMEOUT_S)
            _log.info("group %s is not deleted: %s", self._group, why)
        self._published = {}
