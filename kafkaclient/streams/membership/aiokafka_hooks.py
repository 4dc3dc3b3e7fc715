"""All uses of aiokafka's private attributes and methods.

If a release of aiokafka changes one of them, ``tests/streams/test_aiokafka_hooks.py`` fails. Read
what changed before you correct the test.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

from kafkaclient.types import ConsumerGroupMetadata

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiokafka import AIOKafkaConsumer


class ConsumerHooks:
    """Access to the internals of a started consumer that has not subscribed yet."""

    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self.consumer = consumer

    @property
    def member_id(self) -> str:
        """Empty before the first join, and after the group has removed this member."""
        name: str = self.consumer._coordinator.member_id
        return name

    @property
    def group(self) -> ConsumerGroupMetadata:
        """The group metadata for committing offsets now (KIP-447)."""
        generation = self.consumer._coordinator.generation
        return ConsumerGroupMetadata(self.consumer._group_id, generation, self.member_id)

    @property
    def is_rebalancing(self) -> bool:
        """Whether a rebalance is in progress or requested."""
        in_progress: bool = self.consumer._subscription.reassignment_in_progress
        requested: bool = self.consumer._coordinator._rejoin_needed_fut.done()
        return in_progress or requested

    def request_rejoin(self) -> None:
        """Rejoin the group. The group rebalances if this member is the leader or its subscription
        has changed. A request during a JoinGroup is lost."""
        self.consumer._coordinator.request_rejoin()

    def before_assignment(self, prepare: Callable[[], Awaitable[None]]) -> None:
        """On the leader, await ``prepare`` before the assignor's synchronous ``assign``."""
        coordinator = self.consumer._coordinator
        perform = coordinator._perform_assignment

        @wraps(perform)
        async def prepared(response: Any) -> Any:
            await prepare()
            return await perform(response)

        coordinator._perform_assignment = prepared
