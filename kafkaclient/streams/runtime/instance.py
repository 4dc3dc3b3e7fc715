"""One run of an application: creates its parts, runs them, and shuts them down in order."""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkaclient.errors import ConfigError, StreamsError

try:
    from aiokafka import TopicPartition as ConsumerPartition
    from aiokafka.errors import KafkaError as ConsumerError
except ImportError as error:
    raise ConfigError(
        "a streams application needs aiokafka for its consumers: pip install 'kafkaclient[streams]'"
    ) from error

from kafkaclient.admin.admin import Admin
from kafkaclient.producer.producer import Producer
from kafkaclient.reader.reader import Reader
from kafkaclient.streams.membership.aiokafka_hooks import ConsumerHooks
from kafkaclient.streams.membership.rebalance_schedule import RebalanceSchedule
from kafkaclient.streams.positions import PositionsPublisher
from kafkaclient.streams.runtime.changelog_reader import ChangelogBytes, ChangelogReader
from kafkaclient.streams.runtime.consumer_options import new_consumer
from kafkaclient.streams.runtime.group_member import GroupMember, ProtocolAssignor
from kafkaclient.streams.runtime.inputs import Inputs
from kafkaclient.streams.runtime.task import TaskOptions
from kafkaclient.streams.runtime.task_manager import TaskManager
from kafkaclient.streams.runtime.task_states import TaskState
from kafkaclient.streams.runtime.topics import end_offsets, prepare_topics
from kafkaclient.streams.runtime.writers import AtLeastOnceWriter, ExactlyOnceWriter
from kafkaclient.streams.state.directory import StateDirectory

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkaclient.streams.config import StreamsConfig
    from kafkaclient.streams.runtime.task import Task
    from kafkaclient.streams.runtime.topics import ApplicationTopics
    from kafkaclient.streams.runtime.writers import Writer
    from kafkaclient.streams.tasks import TaskId
    from kafkaclient.streams.topology import Topology
    from kafkaclient.types import TopicPartition

_log = logging.getLogger(__name__)

_TAKE_TIMEOUT_S = 0.1
_NO_PARTITION = ConsumerPartition("", -1)
_SHUTDOWN_TIMEOUT_S = 10.0  # how long the shutdown waits for a record
_CLEANUP_INTERVAL_S = 10.0
_DISK_THREADS = 2


class TaskDescription(NamedTuple):
    """A task on this instance."""

    task: TaskId
    state: TaskState
    position: int
    """Offset in the task's changelog."""
    lag: int | None
    """Records behind the changelog's end. None: the task is running, or the lag is unknown."""


class Instance:
    """One run of the application. A second run needs a new instance."""

    def __init__(self, config: StreamsConfig, topology: Topology) -> None:
        self._config = config
        self._topology = topology
        self._clock = time.monotonic
        self._crashed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._producer: Producer | None = None
        """With ``at_least_once``: the producer that all tasks share."""
        self._tasks: Mapping[TaskId, Task] = {}
        self._reader: ChangelogReader | None = None

    def tasks(self) -> list[TaskDescription]:
        """The tasks, sorted. Empty before the first assignment."""
        return sorted(
            TaskDescription(task.id, task.state, task.position, task.lag)
            for task in self._tasks.values()
            if task.state is not TaskState.CREATED
        )

    @property
    def changelog_bytes(self) -> ChangelogBytes:
        return ChangelogBytes(0, 0) if self._reader is None else self._reader.bytes_read

    async def run(self, stopped: asyncio.Event) -> None:
        """Run until stopped or cancelled. Raises the error that crashed the instance."""
        async with AsyncExitStack() as stack:
            self._directory = StateDirectory(self._config.directory, self._clock)
            stack.callback(self._directory.close)
            topics = await prepare_topics(self._config, self._topology)
            reader = await self._start(stack, topics)
            positions = PositionsPublisher(
                self._new_admin,
                self._config.application_id,
                self._directory.process_id,
                self._standby_positions,
            )
            loops = [
                asyncio.create_task(self._crash_on_error(work), name=f"kafkaclient-streams-{name}")
                for name, work in (
                    ("work", self._fetch_records()),
                    ("changelogs", reader.run()),
                    ("positions", positions.run()),
                )
            ]
            stopping = asyncio.create_task(stopped.wait())
            stack.callback(stopping.cancel)
            either: set[asyncio.Future[Any]] = {self._crashed, stopping}
            try:
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            finally:
                await self._shut_down(loops)
                await positions.close()
            if self._crashed.done():
                self._crashed.result()

    async def _start(self, stack: AsyncExitStack, topics: ApplicationTopics) -> ChangelogReader:
        config = self._config
        assignor = ProtocolAssignor()
        self._consumer = new_consumer(
            config,
            group_id=config.application_id,
            partition_assignment_strategy=[assignor],
            session_timeout_ms=config.session_timeout_ms,
            heartbeat_interval_ms=config.heartbeat_interval_ms,
            rebalance_timeout_ms=config.rebalance_timeout_ms,
            auto_offset_reset=config.auto_offset_reset,
        )
        disk = stack.enter_context(ThreadPoolExecutor(_DISK_THREADS, "kafkaclient-disk"))
        fetch_ends = partial(end_offsets, await stack.enter_async_context(self._new_admin()))
        stack.push_async_callback(self._consumer.stop)
        records = Reader(config.bootstrap_servers, **config.reader_options)
        await stack.enter_async_context(records)
        try:
            await self._consumer.start()
        except ConsumerError as error:
            raise StreamsError(
                f"the consumer cannot connect to {config.bootstrap_servers}: {error!r}"
            ) from error
        if not config.exactly_once:
            self._producer = Producer(config.bootstrap_servers, **config.client_options)
            await stack.enter_async_context(self._producer)
        self._hooks = hooks = ConsumerHooks(self._consumer)
        self._schedule = RebalanceSchedule(config.acceptable_recovery_lag, self._clock, time.time)
        self._reader = reader = ChangelogReader(records, self._schedule.observe)
        self._inputs = Inputs(records, config.auto_offset_reset, self._clock)
        self._manager = TaskManager(
            self._topology,
            self._directory,
            self._inputs,
            reader,
            fetch_ends,
            make_writer=self._make_writer,
            on_migrated=self._schedule.request_soon,
            crash=self.crash,
            disk=disk,
            options=TaskOptions(
                commit_interval_s=config.commit_interval_ms / 1000,
                transaction_timeout_s=config.transaction_timeout_s,
                session_timeout_s=config.session_timeout_ms / 1000,
                auto_offset_reset=config.auto_offset_reset,
                changelogs=topics.changelogs,
                clock=self._clock,
            ),
        )
        stack.callback(self._manager.close)
        self._tasks = self._manager.tasks
        self._member = GroupMember(
            config,
            self._topology,
            self._directory,
            self._manager,
            self._schedule,
            fetch_ends,
            hooks,
            topics.partitions,
        )
        known = self._topology.tasks(topics.partitions)
        # Stores of tasks that are likely to be assigned here are opened before joining the group.
        await self._manager.open_stores(task for task in self._directory.report() if task in known)
        assignor.member = self._member
        hooks.before_assignment(self._member.fetch_ends)
        # The consumer joins the group as soon as it has subscribed, so this comes last.
        self._consumer.subscribe(self._topology.topics, listener=self._member)
        return reader

    def _new_admin(self) -> Admin:
        return Admin(self._config.bootstrap_servers, **self._config.client_options)

    def _standby_positions(self) -> dict[TopicPartition, int]:
        return {
            task.changelog: task.position
            for task in self._tasks.values()
            if task.state is TaskState.STANDBY
        }

    def _make_writer(self, task: Task) -> Writer:
        if self._producer is not None:
            return AtLeastOnceWriter(self._producer, self._consumer)
        producer = Producer(
            self._config.bootstrap_servers,
            transactional_id=f"{self._config.application_id}-{task.id}",
            **self._config.transactional_options,
        )
        return ExactlyOnceWriter(producer, lambda: self._member.group)

    async def _fetch_records(self) -> None:
        """Fetch, in a loop, for the tasks that want records. Their workers process them."""
        clean_at = self._clock() + _CLEANUP_INTERVAL_S
        poll_at = self._clock()
        while True:
            wanted = self._manager.wanted_partitions()
            self._manager.deliver(await self._inputs.take(wanted, _TAKE_TIMEOUT_S))
            if self._clock() >= poll_at:
                # It keeps this member in the group (max.poll.interval.ms), and raises its errors.
                await self._consumer.getmany(_NO_PARTITION, timeout_ms=0)
                poll_at = self._clock() + _TAKE_TIMEOUT_S
            if self._schedule.take_due() and not self._hooks.is_rebalancing:
                self._hooks.request_rejoin()
            if self._clock() >= clean_at:
                delay = self._config.state_cleanup_delay_ms / 1000
                self._directory.clean(self._manager.in_use(), delay)
                for task in self._tasks.values():
                    task.refresh_checkpoint()
                clean_at = self._clock() + _CLEANUP_INTERVAL_S

    def crash(self, error: BaseException) -> None:
        """End the instance with this error. Only the first error counts."""
        self._manager.stop_work()
        if not self._crashed.done():
            self._crashed.set_exception(error)

    async def _crash_on_error(self, work: Any) -> None:
        try:
            await work
        except ConsumerError as error:
            failure = StreamsError(f"the application cannot fetch any more: {error!r}")
            failure.__cause__ = error
            self.crash(failure)
        except Exception as error:  # noqa: BLE001 - raised by run
            self.crash(error)

    async def _shut_down(self, loops: list[asyncio.Task[None]]) -> None:
        """Commit, unless the instance has crashed, and leave the group. The stores are closed
        later, when no task writes any more."""
        if not self._crashed.done():
            await self._manager.suspend(_SHUTDOWN_TIMEOUT_S)
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)
        await self._manager.end_writers()
        try:
            await self._consumer.stop()
        except ConsumerError as error:
            _log.warning(
                "group %s could not be left; its other members wait for session.timeout.ms: %r",
                self._config.application_id,
                error,
            )
