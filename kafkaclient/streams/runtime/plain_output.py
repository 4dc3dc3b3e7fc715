"""At least once: each task's records are written, then its changes, then its offsets."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from kafkaclient.errors import KafkaError, KafkaTimeoutError
from kafkaclient.streams.key_value_store import LARGE
from kafkaclient.streams.runtime.outputs import STOP_TIMEOUT_S, Output

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kafkaclient.producer.batches.delivery import Delivery
    from kafkaclient.producer.producer import Producer
    from kafkaclient.streams.runtime.outputs import (
        Changes,
        Offsets,
        OutgoingRecord,
        SentChanges,
    )
    from kafkaclient.types import OffsetAndMetadata, TopicPartition


class PlainOutput(Output):
    """At least once. The ``gate`` lets nothing be written while another member may have the tasks:
    what is older than the next owner's changes would replace them."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._next: _SharedCommit | None = None
        """Takes offsets until the request before it has been answered."""
        self._committing = asyncio.Lock()
        self._commits: set[asyncio.Task[None]] = set()

    async def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        for commit in self._commits:
            commit.cancel()
        await asyncio.gather(*self._commits, return_exceptions=True)
        await super().stop(timeout_s)

    def send_nowait(self, record: OutgoingRecord) -> Delivery:
        if not self._gate.is_in_session:
            raise KafkaTimeoutError("the group's coordinator has not answered for a session")
        return super().send_nowait(record)

    async def send(self, record: OutgoingRecord) -> Delivery:
        await self._gate.wait_in_session()
        return await super().send(record)

    async def abandon(self) -> None:
        if not self._gate.is_in_session:
            await super().stop(0)  # drops what is not sent yet, of all tasks

    async def _write(
        self,
        producer: Producer,
        emitted: Sequence[Delivery],
        changes: Changes,
        sent: SentChanges,
        times_lost: int,
    ) -> None:
        # A change that is written stays, though its record is processed again if the commit fails.
        # So what a broker may refuse goes first.
        async with self._gate.while_in_session(times_lost):
            await _outcomes(emitted)
            for is_large in (True, False):
                part = {
                    each: {k: v for k, v in found.items() if _is_large(k, v) is is_large}
                    for each, found in changes.items()
                }
                # The process may have been stopped meanwhile.
                await self._gate.wait_in_session(times_lost)
                await super()._write(producer, emitted, part, sent, times_lost)
                await _outcomes(each for found in sent.values() for each in found.values())

    async def _finish(self, producer: Producer, offsets: Offsets, times_lost: int) -> None:
        # One request at a time. Tasks that are ready meanwhile share the next one.
        if self._next is None or self._next.times_lost != times_lost:
            self._next = _SharedCommit(times_lost)
            self._next.task = asyncio.create_task(self._commit(self._next))
            self._commits.add(self._next.task)
            self._next.task.add_done_callback(self._commits.discard)
        self._next.offsets |= offsets
        await asyncio.shield(self._next.task)

    async def _commit(self, shared: _SharedCommit) -> None:
        async with self._committing:
            if self._next is shared:
                self._next = None
            await self._offsets.commit(shared.offsets, shared.times_lost)


class _SharedCommit:
    """The next request that commits offsets, of tasks that have lost nothing since the gate had
    ``times_lost``."""

    task: asyncio.Task[None]

    def __init__(self, times_lost: int) -> None:
        self.times_lost = times_lost
        self.offsets: dict[TopicPartition, OffsetAndMetadata] = {}


async def _outcomes(deliveries: Iterable[Delivery]) -> None:
    """Wait until all records have an outcome. Then raise the first one's error."""
    failure = None
    for delivery in deliveries:
        try:
            await delivery
        except KafkaError as error:
            failure = failure or error
    if failure is not None:
        raise failure


def _is_large(key: bytes, value: bytes | None) -> bool:
    return len(key) + len(value or b"") > LARGE
