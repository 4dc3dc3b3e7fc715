"""When a client's first word was written and its last count committed, as brokers see it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from experiments.word_count.process import Usage
from kafkaclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from experiments.word_count.clients import Client
    from experiments.word_count.plan import Plan
    from experiments.word_count.process import ClientProcess
    from kafkaclient.admin import Admin

__all__ = ["Measured", "Observer"]

_POLL_S = 0.1
_QUIET_S = 2.0
"""Counts are read after this time without a commit; longer than each client's commit interval."""


@dataclass(slots=True)
class Measured:
    """A run; times are of the monotonic clock."""

    started: float
    began: float | None = None
    """When the first word was in the topic of the words."""
    ended: float = 0.0
    """When the last stable offset of the changelog last moved."""
    at_begin: Usage = field(default_factory=lambda: Usage(0.0, 0.0))
    at_end: Usage = field(default_factory=lambda: Usage(0.0, 0.0))


class Observer:
    """Watches the topics of a client that runs. ``words`` is how many it has split off so far."""

    def __init__(
        self, admin: Admin, bootstrap: str, client: Client, application: str, plan: Plan
    ) -> None:
        self.words = 0
        self.changelog = ""
        self._admin = admin
        self._bootstrap = bootstrap
        self._client = client
        self._application = application
        self._plan = plan

    async def watch(
        self, process: ClientProcess, counted: Callable[[str], Awaitable[int]]
    ) -> Measured:
        """The run, which ends when ``await counted(changelog)`` is at least the plan's words, or
        when nothing was committed for the plan's ``stall_s``.

        ``counted`` is called when no commit comes any more. Raises KafkaError if the process ends.
        """
        module = import_module("aiokafka")
        uncommitted = module.AIOKafkaConsumer(bootstrap_servers=self._bootstrap)
        measured = Measured(time.monotonic())
        await uncommitted.start()
        try:
            words, changes = await self._topics(process, measured.started)
            while measured.began is None:
                await self._wait(process, measured.started)
                now = time.monotonic()
                if await self._written(uncommitted, words):
                    measured.began, measured.at_begin = now, process.usage()
            measured.ended, measured.at_end = measured.began, measured.at_begin
            known: dict[TopicPartition, int] = {}
            looked = False
            while True:
                await self._wait(process, measured.ended)
                now = time.monotonic()
                found = await self._admin.end_offsets(changes)
                if found != known:
                    known, looked = found, False
                    measured.ended, measured.at_end = now, process.usage()
                    self.words = await self._written(uncommitted, words)
                elif now - measured.ended > _QUIET_S and not looked:
                    looked = True
                    if await counted(self.changelog) >= self._plan.words:
                        return measured
                if now - measured.ended > self._plan.stall_s:
                    return measured
        finally:
            await uncommitted.stop()

    async def _wait(self, process: ClientProcess, since: float) -> None:
        await asyncio.sleep(_POLL_S)
        process.check()
        if time.monotonic() - since > 2 * self._plan.stall_s:
            raise TimeoutError(f"nothing came within {2 * self._plan.stall_s:g} s")

    async def _topics(
        self, process: ClientProcess, since: float
    ) -> tuple[list[TopicPartition], list[TopicPartition]]:
        """The partitions of the words and of the changelog, once the client has made them."""
        while True:
            await self._wait(process, since)
            names = await self._admin.list_topics()
            words = [name for name in names if self._client.words(name, self._application)]
            changes = [name for name in names if self._client.changelog(name, self._application)]
            if words and changes:
                self.changelog = changes[0]
                return await self._partitions(words[0]), await self._partitions(changes[0])

    async def _partitions(self, topic: str) -> list[TopicPartition]:
        described = await self._admin.describe_topic(topic)
        return [TopicPartition(topic, found.partition) for found in described.partitions]

    async def _written(self, consumer: Any, partitions: list[TopicPartition]) -> int:
        module = import_module("aiokafka")
        wanted = [module.TopicPartition(p.topic, p.partition) for p in partitions]
        return sum((await consumer.end_offsets(wanted)).values())
