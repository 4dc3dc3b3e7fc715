"""One run of an application: creates its parts, runs them, and shuts them down in order."""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkaclient.admin.admin import Admin
from kafkaclient.broker_errors import ErrorCode
from kafkaclient.errors import BrokerError, KafkaError, StreamsError, TransactionAbortableError
from kafkaclient.group.commit_gate import CommitGate, session_clock
from kafkaclient.group.connection import GroupOffsets, group_connection
from kafkaclient.group.member import Member, MemberOptions
from kafkaclient.producer.producer import Producer
from kafkaclient.reader.reader import Reader
from kafkaclient.streams.leader import RebalanceSchedule
from kafkaclient.streams.positions import PositionsPublisher
from kafkaclient.streams.runtime.changelog_reader import ChangelogBytes, ChangelogReader, to_the_end
from kafkaclient.streams.runtime.dead_transactions import (
    DeadTransactions,
    purge_repartition_topics,
    transactional_id,
)
from kafkaclient.streams.runtime.inputs import Inputs
from kafkaclient.streams.runtime.outputs import TransactionalOutput
from kafkaclient.streams.runtime.plain_output import PlainOutput
from kafkaclient.streams.runtime.queries import Queries
from kafkaclient.streams.runtime.streams_protocol import StreamsProtocol
from kafkaclient.streams.runtime.task import TaskOptions
from kafkaclient.streams.runtime.task_manager import TaskManager
from kafkaclient.streams.runtime.topics import (
    check_internal_topics,
    end_offsets,
    partition_counts,
    prepare_topics,
    watch_internal_topics,
)
from kafkaclient.streams.state_directory import StateDirectory
from kafkaclient.streams.tasks import TaskDescription, TaskState
from kafkaclient.time_limit import cancel_and_wait, time_limit, why_given_up

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

    from kafkaclient.group.connection import GroupConnection
    from kafkaclient.streams.config import StreamsConfig
    from kafkaclient.streams.runtime.observer import Observer
    from kafkaclient.streams.runtime.outputs import Output
    from kafkaclient.streams.runtime.task import Task
    from kafkaclient.streams.tasks import TaskId
    from kafkaclient.streams.topology import Topology
    from kafkaclient.types import ConsumerGroupMetadata, TopicPartition

_log = logging.getLogger(__name__)

_TAKE_TIMEOUT_S = 0.1
_SHUTDOWN_TIMEOUT_S = 10.0  # how long the shutdown waits for a record
_COMMIT_TIMEOUT_S = 15.0  # how long it waits for records and commits together
_LEAVE_TIMEOUT_S = 5.0
_CLEANUP_INTERVAL_S = 10.0
_DISK_THREADS = 2
_EXPLAIN_TIMEOUT_S = 5.0


class Instance:
    """One run of the application. A second run needs a new instance."""

    def __init__(self, config: StreamsConfig, topology: Topology, observer: Observer) -> None:
        self._config = config
        self._topology = topology
        self._observer = observer
        self.queries: Queries | None = None
        """None before the instance is about to join its group."""
        self._schedule = RebalanceSchedule(
            config.acceptable_recovery_lag, time.monotonic, time.time
        )
        self._clock = time.monotonic
        self._crashed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tasks: Mapping[TaskId, Task] = {}
        self._changelog_reader: ChangelogReader | None = None
        self._is_working = False
        self._hurry = asyncio.Event()

    def tasks(self) -> list[TaskDescription]:
        """The tasks, sorted. Empty before the first assignment."""
        return sorted(
            TaskDescription(task.id, task.state, task.position, task.lag)
            for task in self._tasks.values()
            if task.state is not TaskState.CREATED
        )

    @property
    def warmups(self) -> int:
        """How many copies have not caught up while tasks are to move."""
        return self._schedule.warmups

    @property
    def changelog_bytes(self) -> ChangelogBytes:
        reader = self._changelog_reader
        return ChangelogBytes(0, 0) if reader is None else reader.bytes_read

    async def run(self, stopped: asyncio.Event) -> None:
        """Run until stopped or cancelled. Raises the error that crashed the instance. It always
        ends its parts and leaves the group; cancelled again meanwhile, it commits no more."""
        stack = AsyncExitStack()
        stopping = asyncio.create_task(stopped.wait())
        starting = asyncio.create_task(self._start(stack), name="kafkaclient-streams-start")
        try:
            await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
                either: set[asyncio.Future[Any]] = {self._crashed, stopping}
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                await self._explain_crash()
        finally:
            starting.cancel()
            stopping.cancel()
            self._observer.run_ending()
            await to_the_end(self._end(starting, stack), on_cancel=self._hurry.set)
        if self._crashed.done():
            self._crashed.result()

    async def _start(self, stack: AsyncExitStack) -> None:
        """Make the parts, and start them. What ends them is on the stack as soon as they exist."""
        config = self._config
        self._directory = StateDirectory(config.directory, self._clock)
        stack.callback(self._directory.close)
        admin = await stack.enter_async_context(self._new_admin())
        topics = await prepare_topics(admin, config, self._topology)
        self._topology = topics.topology
        disk = stack.enter_context(ThreadPoolExecutor(_DISK_THREADS, "kafkaclient-disk"))
        fetch_ends = partial(end_offsets, admin)
        reader = Reader(config.bootstrap_servers, **config.reader_options)
        await stack.enter_async_context(reader)
        connection = await stack.enter_async_context(
            group_connection(
                config.application_id,
                config.producer_config,
                rebalance_timeout_s=config.rebalance_timeout_ms / 1000,
            )
        )
        shorter_ms = min(config.session_timeout_ms, config.rebalance_timeout_ms)
        gate = CommitGate(config.application_id, config.group_instance_id, shorter_ms / 1000)
        self._changelog_reader = changelog_reader = ChangelogReader(
            reader, self._schedule.observe, self._observer
        )
        self._inputs = Inputs(
            reader,
            config.auto_offset_reset,
            self._clock,
            self._topology.internal_topics,
            dict(topics.partitions),
        )
        self._check_topics = partial(check_internal_topics, admin, topics.internal)
        self._manager = manager = TaskManager(
            self._topology,
            self._directory,
            self._inputs,
            changelog_reader,
            fetch_ends,
            self._new_output(stack, admin, connection, gate),
            gate,
            crash=self.crash,
            disk=disk,
            options=TaskOptions(
                commit_interval_s=config.commit_interval_ms / 1000,
                session_timeout_s=config.session_timeout_ms / 1000,
                changelogs=topics.changelogs,
                observer=self._observer,
                clock=self._clock,
            ),
        )
        stack.callback(manager.close)
        self._tasks = manager.tasks
        stack.push_async_callback(manager.end_work)  # if the rest of the start fails
        await manager.committers.start()
        protocol = StreamsProtocol(
            config,
            self._topology,
            self._directory,
            manager,
            self._schedule,
            fetch_ends,
            partial(partition_counts, admin, self._topology.topics),
            topics.partitions,
            self._observer,
        )
        self.queries = Queries(self._topology, manager.tasks, protocol, config.host_info)
        options = MemberOptions(
            session_timeout_ms=config.session_timeout_ms,
            rebalance_timeout_ms=config.rebalance_timeout_ms,
            heartbeat_interval_ms=config.heartbeat_interval_ms,
            group_instance_id=config.group_instance_id,
        )
        self._member = member = Member(connection, protocol, options, gate, session_clock)
        known = self._topology.tasks(topics.partitions)
        # Stores of tasks that are likely to be assigned here are opened before joining the group.
        await manager.open_stores(task for task in self._directory.report() if task in known)
        positions = PositionsPublisher(
            self._new_admin,
            config.application_id,
            self._directory.process_id,
            self._standby_positions,
        )
        stack.push_async_callback(positions.close)
        stack.push_async_callback(member.leave, "the instance ends", _LEAVE_TIMEOUT_S)
        stack.push_async_callback(manager.end_work)  # before the member leaves
        stack.push_async_callback(protocol.close)
        look_every_s = config.reader_config.look_every_s
        purging = purge_repartition_topics(
            self._new_admin,
            config.repartition_purge_interval_ms / 1000,
            self._committed_offsets,
        )
        for name, work in (
            ("work", self._fetch_records()),
            ("changelogs", changelog_reader.run()),
            ("positions", positions.run()),
            ("purge", purging),
            ("topics", watch_internal_topics(admin, topics.internal)),
            ("inputs", protocol.watch_inputs(look_every_s, member.request_rejoin)),
            ("group", self._stay_in_group()),
        ):
            running = asyncio.create_task(
                self._crash_on_error(work), name=f"kafkaclient-streams-{name}"
            )
            stack.push_async_callback(cancel_and_wait, running)
        self._is_working = True

    def _new_admin(self) -> Admin:
        return Admin(self._config.bootstrap_servers, **self._config.client_options)

    def _standby_positions(self) -> dict[TopicPartition, int]:
        return {
            store.changelog: store.position
            for task in self._tasks.values()
            if task.state is TaskState.STANDBY
            for store in task.task_stores
        }

    def _committed_offsets(self) -> dict[TopicPartition, int]:
        """The last commits of the repartition topics."""
        return {
            source: offset
            for task in self._tasks.values()
            for source, offset in task.committed_offsets.items()
            if source.topic in self._topology.internal_topics
        }

    def _new_output(
        self, stack: AsyncExitStack, admin: Admin, connection: GroupConnection, gate: CommitGate
    ) -> Output:
        config = self._config
        offsets = GroupOffsets(
            connection, gate, self._commit_refused, config.producer_config.call_limit.seconds
        )
        if not config.exactly_once:
            new = partial(Producer, config.bootstrap_servers, **config.producer_defaults)
            return PlainOutput(config.producer_config, new, offsets, gate)
        identity = config.application_id, self._directory.process_id
        dead = DeadTransactions(admin, *identity, self._clock)
        stack.push_async_callback(dead.close)
        new = partial(
            Producer,
            config.bootstrap_servers,
            transactional_id=transactional_id(*identity),
            **config.producer_defaults,
        )
        return TransactionalOutput(config.producer_config, new, offsets, gate, dead)

    async def _stay_in_group(self) -> None:
        try:
            await self._member.run()
        except BrokerError as error:
            if error.code != ErrorCode.FENCED_INSTANCE_ID:
                raise
            raise StreamsError(str(error)) from error

    def _commit_refused(self, code: int, group: ConsumerGroupMetadata) -> None:
        self._member.commit_refused(code, group)  # it is made later

    async def _fetch_records(self) -> None:
        """Fetch, in a loop, for the tasks that want records. Their workers process them."""
        clean_at = self._clock() + _CLEANUP_INTERVAL_S
        while True:
            wanted = self._manager.wanted_partitions()
            self._manager.deliver(await self._inputs.take(wanted, _TAKE_TIMEOUT_S))
            # A request that is due during a rebalance is dropped: the assignment schedules anew.
            if self._schedule.take_due() and not self._member.is_rebalancing:
                self._member.request_rejoin("tasks may be assigned better")
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

    async def _explain_crash(self) -> None:
        """If a transaction failed because an internal topic was deleted, and perhaps created again,
        let the error of the crash name the topic."""
        crash = self._crashed.exception() if self._crashed.done() else None
        if isinstance(crash, TransactionAbortableError):
            try:
                async with time_limit(_EXPLAIN_TIMEOUT_S):
                    await self._check_topics()
            except StreamsError as explained:
                explained.__cause__ = crash
                self._crashed = asyncio.get_running_loop().create_future()
                self._crashed.set_exception(explained)
            except (KafkaError, TimeoutError) as error:
                why = why_given_up(error, _EXPLAIN_TIMEOUT_S)
                _log.info("not known whether the internal topics exist: %s", why)

    async def _crash_on_error(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 - raised by run
            self.crash(error)

    async def _end(self, starting: asyncio.Task[None], stack: AsyncExitStack) -> None:
        """Commit, unless the instance has crashed or is in a hurry. Then end all parts. The stores
        are closed last, when no task writes any more."""
        await asyncio.gather(starting, return_exceptions=True)
        if self._is_working and not self._crashed.done():
            committing = asyncio.create_task(self._manager.finish_and_commit(_SHUTDOWN_TIMEOUT_S))
            hurrying = asyncio.create_task(self._hurry.wait())
            await asyncio.wait(
                {committing, hurrying},
                timeout=_COMMIT_TIMEOUT_S,
                return_when=asyncio.FIRST_COMPLETED,
            )
            await cancel_and_wait(hurrying)
            await cancel_and_wait(committing)
        try:
            await stack.aclose()
        except Exception as error:
            if not self._crashed.done():
                raise
            _log.warning("the instance has crashed, and could not end all its parts: %r", error)
        finally:
            if self._crashed.done():
                self._crashed.exception()  # run() raises it, unless it is cancelled
