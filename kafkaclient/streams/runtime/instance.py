"""One run of an application: its parts, made, joined, and taken apart in order."""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkaclient.errors import ConfigError, StreamsError

try:
    from aiokafka import AIOKafkaConsumer
    from aiokafka import TopicPartition as ConsumerPartition
    from aiokafka.errors import KafkaError as ConsumerError
except ImportError as error:
    raise ConfigError(
        "a streams application reads with aiokafka's consumer: pip install 'kafkaclient[streams]'"
    ) from error

from kafkaclient.admin.admin import Admin
from kafkaclient.producer.producer import Producer
from kafkaclient.streams.membership.aiokafka_hooks import ConsumerHooks
from kafkaclient.streams.membership.deadline import RebalanceSchedule
from kafkaclient.streams.membership.protocol_assignor import ProtocolAssignor
from kafkaclient.streams.positions import positions_group, publish_positions
from kafkaclient.streams.runtime.changelog_ends import ChangelogEnds
from kafkaclient.streams.runtime.changelog_reader import ChangelogBytes, ChangelogReader
from kafkaclient.streams.runtime.group_member import GroupMember
from kafkaclient.streams.runtime.task_manager import TaskManager
from kafkaclient.streams.runtime.task_states import TaskState
from kafkaclient.streams.runtime.topics import prepare_topics
from kafkaclient.streams.runtime.writers import AtLeastOnceWriter, ExactlyOnceWriter
from kafkaclient.streams.state.directory import StateDirectory
from kafkaclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkaclient.streams.config import StreamsConfig
    from kafkaclient.streams.runtime.task import Task
    from kafkaclient.streams.runtime.writers import Writer
    from kafkaclient.streams.tasks import TaskId
    from kafkaclient.streams.topology import Topology
    from kafkaclient.types import ConsumerGroupMetadata

__all__ = ["Instance", "TaskDescription"]

_log = logging.getLogger(__name__)

_POLL_MS = 100
_MOST_RECORDS = 1_000
"""In one go, of all tasks."""
_FETCH_WAIT_MS = 100
"""How long a broker holds a fetch without records back; a partition that is added meanwhile waits
for it."""
_CLEAN_EVERY = 10.0
"""Seconds."""
_DISK_THREADS = 2


class TaskDescription(NamedTuple):
    """A task's copy on this instance."""

    task: TaskId
    state: TaskState
    position: int
    """In its changelog."""
    lag: int | None
    """Records that it is behind; None: it runs, or that is not known yet."""


class Instance:
    """Good for one :meth:`run`."""

    def __init__(self, config: StreamsConfig, topology: Topology) -> None:
        self._config = config
        self._topology = topology
        self._clock = time.monotonic
        self._turn = asyncio.Lock()
        """Held while records are processed and committed; rebalances take it in between."""
        self._may_work = asyncio.Event()
        self._crashed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._producer: Producer | None = None
        """All tasks' own, at least once."""
        self._tasks: Mapping[TaskId, Task] = {}
        self._reader: ChangelogReader | None = None

    def tasks(self) -> list[TaskDescription]:
        """Sorted; empty before the first assignment."""
        return sorted(
            TaskDescription(task.id, task.state, task.position, task.lag)
            for task in self._tasks.values()
            if task.state is not TaskState.CREATED
        )

    @property
    def changelog_bytes(self) -> ChangelogBytes:
        return ChangelogBytes(0, 0) if self._reader is None else self._reader.bytes_read

    async def run(self, stopped: asyncio.Event) -> None:
        """Until stopped or cancelled; raises what ended it otherwise."""
        async with AsyncExitStack() as parts:
            self._directory = StateDirectory(self._config.directory, self._clock)
            parts.callback(self._directory.close)
            partitions = await prepare_topics(self._config, self._topology)
            reader = await self._start(parts, partitions)
            loops = [
                asyncio.create_task(self._guarded(work), name=f"kafkaclient-streams-{name}")
                for name, work in (
                    ("work", self._work()),
                    ("changelogs", reader.run()),
                    ("positions", self._publish_positions()),
                )
            ]
            try:
                await _first(self._crashed, stopped)
            finally:
                await self._end(loops)
            if self._crashed.done():
                self._crashed.result()

    async def _start(self, parts: AsyncExitStack, partitions: Mapping[str, int]) -> ChangelogReader:
        config = self._config
        assignor = ProtocolAssignor()
        self._consumer = AIOKafkaConsumer(
            group_id=config.application_id,
            partition_assignment_strategy=[assignor],
            session_timeout_ms=config.session_timeout_ms,
            heartbeat_interval_ms=config.heartbeat_interval_ms,
            rebalance_timeout_ms=config.rebalance_timeout_ms,
            auto_offset_reset="earliest",
            **self._consumer_options(),
        )
        changelogs = AIOKafkaConsumer(auto_offset_reset="none", **self._consumer_options())
        disk = parts.enter_context(ThreadPoolExecutor(_DISK_THREADS, "kafkaclient-disk"))
        admin = await parts.enter_async_context(
            Admin(config.bootstrap_servers, **config.producer_options)
        )
        ends = ChangelogEnds(admin)
        parts.push_async_callback(changelogs.stop)
        parts.push_async_callback(self._consumer.stop)
        try:
            await changelogs.start()
            await self._consumer.start()
        except ConsumerError as error:
            raise StreamsError(f"the brokers cannot be reached: {error!r}") from error
        if not config.exactly_once:
            self._producer = Producer(config.bootstrap_servers, **config.producer_options)
            await parts.enter_async_context(self._producer)
        self._hooks = hooks = ConsumerHooks(self._consumer)
        self._schedule = RebalanceSchedule(config.acceptable_recovery_lag, self._clock, time.time)
        self._reader = reader = ChangelogReader(changelogs, self._observe)
        self._manager = TaskManager(
            self._topology,
            self._directory,
            self._consumer,
            reader,
            ends,
            make_writer=self._make_writer,
            on_migrated=self._schedule.want,
            crash=self.crash,
            disk=disk,
        )
        parts.callback(self._manager.close)
        self._tasks = self._manager.tasks
        self._member = GroupMember(
            config,
            self._topology,
            self._directory,
            self._manager,
            self._schedule,
            ends,
            hooks,
            partitions,
            self,
        )
        known = self._topology.tasks(partitions)
        await self._manager.prepare(task for task in self._directory.report() if task in known)
        assignor.serve(self._member)
        hooks.before_assignment(self._member.fetch_ends)
        # Only now: a consumer that has subscribed joins at once.
        self._consumer.subscribe(self._topology.topics, listener=self._member)
        return reader

    async def _publish_positions(self) -> None:
        config = self._config
        await publish_positions(
            lambda: Admin(config.bootstrap_servers, **config.producer_options),
            positions_group(config.application_id, self._directory.process_id),
            lambda: {
                task.changelog: task.position
                for task in self._tasks.values()
                if task.state is TaskState.STANDBY
            },
        )

    def _consumer_options(self) -> dict[str, Any]:
        return {
            "bootstrap_servers": self._config.bootstrap_servers,
            "enable_auto_commit": False,
            "isolation_level": "read_committed",
            "fetch_max_wait_ms": _FETCH_WAIT_MS,
            **self._config.consumer_options,
        }

    def _make_writer(self, task: Task) -> Writer:
        if self._producer is not None:
            return AtLeastOnceWriter(self._producer, self._consumer)
        producer = Producer(
            self._config.bootstrap_servers,
            transactional_id=f"{self._config.application_id}-{task.id}",
            **{"linger_ms": 0, "transaction_timeout_ms": 10_000, **self._config.producer_options},
        )
        return ExactlyOnceWriter(producer, self._group)

    def _group(self) -> ConsumerGroupMetadata:
        return self._member.group

    # --- work -----------------------------------------------------------------------------------

    async def _work(self) -> None:
        commit_at = self._clock()
        clean_at = self._clock() + _CLEAN_EVERY
        poll_ms = max(1, min(_POLL_MS, self._config.commit_interval_ms))
        while True:
            await self._may_work.wait()
            found = await self._consumer.getmany(timeout_ms=poll_ms, max_records=_MOST_RECORDS)
            running = self._manager.by_source()
            wanted = {source: task.source_offset for source, task in running.items()}
            await self._may_work.wait()
            async with self._turn:
                await self._process(found, wanted)
                if self._clock() >= commit_at:
                    await self._manager.commit()
                    commit_at = self._clock() + self._config.commit_interval_ms / 1000
            if self._schedule.take() and not self._hooks.is_rebalancing:
                self._hooks.request_rejoin()
            if self._clock() >= clean_at:
                delay = self._config.state_cleanup_delay_ms / 1000
                self._directory.clean(self._manager.in_use(), delay)
                clean_at = self._clock() + _CLEAN_EVERY

    async def _process(
        self, found: Mapping[Any, Any], wanted: Mapping[TopicPartition, int]
    ) -> None:
        """Process what was fetched when ``wanted`` were the tasks' positions. When one was moved
        meanwhile, because the task was restored, it is fetched again from there."""
        running = self._manager.by_source()
        records = {}
        for partition, batch in found.items():
            source = TopicPartition(*partition)
            task = running.get(source)
            if task is None:
                continue
            if wanted.get(source) == task.source_offset:
                records[source] = batch
            elif ConsumerPartition(*partition) in self._consumer.assignment():
                self._consumer.seek(ConsumerPartition(*partition), task.source_offset)
        await self._manager.process(records, self._may_work.is_set)

    async def suspend(self) -> None:
        """A rebalance begins: end the work at the next record, and commit what was done."""
        self._may_work.clear()
        async with self._turn:
            await self._manager.commit()

    def resume(self) -> None:
        """The rebalance is over."""
        self._may_work.set()

    def _observe(self, task: Task) -> None:
        assert task.lag is not None
        self._schedule.observe(task.id, task.lag)

    # --- the end --------------------------------------------------------------------------------

    def crash(self, error: BaseException) -> None:
        """The first error that nothing can be done about ends the instance."""
        self._may_work.clear()
        if not self._crashed.done():
            self._crashed.set_exception(error)

    async def _guarded(self, work: Any) -> None:
        try:
            await work
        except ConsumerError as error:
            failure = StreamsError(f"the application cannot go on reading: {error!r}")
            failure.__cause__ = error
            self.crash(failure)
        except Exception as error:  # noqa: BLE001 - told by run
            self.crash(error)

    async def _end(self, loops: list[asyncio.Task[None]]) -> None:
        """Commit what was done, unless something is broken, and leave; the stores are closed when
        nobody writes any more."""
        self._may_work.clear()
        async with self._turn:
            if not self._crashed.done():
                await self._manager.commit()
            for loop in loops:
                loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)
        await self._manager.end_writers()
        try:
            await self._consumer.stop()
        except ConsumerError as error:
            _log.warning("the group could not be left: %r", error)


async def _first(crashed: asyncio.Future[None], stopped: asyncio.Event) -> None:
    waiting = asyncio.create_task(stopped.wait())
    try:
        either: set[asyncio.Future[Any]] = {crashed, waiting}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
