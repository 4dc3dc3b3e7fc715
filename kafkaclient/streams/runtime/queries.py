"""Answers queries: a read-only view of the committed state of this instance's active tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from kafkaclient.errors import ConfigError, StoreUnavailableError
from kafkaclient.streams.tasks import TaskId, TaskState
from kafkaclient.wire.murmur2 import partition_for_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kafkaclient.streams.declarations import Store
    from kafkaclient.streams.group_protocol import HostInfo
    from kafkaclient.streams.runtime.streams_protocol import StreamsProtocol
    from kafkaclient.streams.runtime.task import Task
    from kafkaclient.streams.runtime.task_store import TaskStore
    from kafkaclient.streams.topology import Topology

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")

_ABSENT: Any = object()


class Queries:
    """Finds the task and the instance that have a key.

    ``tasks``: this instance's tasks. ``told``: knows the group's other instances.
    """

    def __init__(
        self,
        topology: Topology,
        tasks: Mapping[TaskId, Task],
        told: StreamsProtocol,
        own: HostInfo | None,
    ) -> None:
        self._topology = topology
        self._tasks = tasks
        self._told = told
        self._own = own

    def task_of(self, store: Store[Any, Any], key: Any, partition: int | None) -> TaskId:
        """The task that has the key, or the partition. Raises ConfigError for a partition that the
        store does not have, and TypeError for a key of another type."""
        number = self._subtopology(store.name)
        topics = map(self._topology.topic_name, self._topology.subtopologies[number].topics)
        count = max(self._told.partitions[topic] for topic in topics)
        if partition is None:
            partition = partition_for_key(store.key.write(key) or b"", count)
        elif isinstance(partition, bool) or not isinstance(partition, int):
            raise ConfigError(f"partition={partition!r} is no number of a partition")
        if not 0 <= partition < count:
            raise ConfigError(
                f"store {store.name!r} has no partition {partition}: it has {count} partitions"
            )
        return TaskId(number, partition)

    def instance_of(self, task: TaskId) -> HostInfo:
        """The instance that has the active task. Raises StoreUnavailableError if it is unknown."""
        sources = set(self._topology.sources(task, self._told.partitions))
        for host, partitions in self._told.hosts.items():
            if not sources.isdisjoint(partitions):
                return host
        raise StoreUnavailableError(
            f"the instance that has task {task} is not known: either the group rebalances, or that "
            "instance has no application_server. Give each instance application_server='host:port'"
        )

    def local(self, store: str, task: TaskId) -> TaskStore:
        """This instance's committed state. Raises StoreUnavailableError if the task does not run
        here."""
        found = self._tasks.get(task)
        if found is not None and found.state is TaskState.RUNNING:
            return next(each for each in found.task_stores if each.declared.name == store)
        error = StoreUnavailableError(f"store {store!r} of task {task} {self._why_not(found)}")
        try:
            instance = self.instance_of(task)
        except StoreUnavailableError as unknown:
            error.__context__ = unknown
            if found is None or not found.is_active:
                error.args = (f"{error}; {unknown}",)
        else:
            if instance != self._own:
                error.instance = instance
                error.args = (f"{error}; instance {instance} has it",)
        raise error

    def local_tasks(self, store: str) -> list[TaskId]:
        """This instance's active tasks with the store, in order."""
        number = self._subtopology(store)
        return sorted(
            task.id
            for task in self._tasks.values()
            if task.id.subtopology == number and task.is_active
        )

    def _why_not(self, found: Task | None) -> str:
        if found is not None and found.state is TaskState.RESTORING:
            lag = f": {found.lag:,} changes are missing" if found.lag else ""
            return f"is being restored here{lag}"
        return "is not active here"

    def _subtopology(self, store: str) -> int:
        for number, each in enumerate(self._topology.subtopologies):
            if store in (declared.name for declared in each.stores):
                return number
        raise AssertionError(store)  # checked when the view was made


class ReadOnlyStore(Generic[K, V]):
    """A store, read from outside of its processors (Java: ``ReadOnlyKeyValueStore``).

    It shows the committed state of the active tasks of this instance, while the application runs.
    A key is in the partition to which producers send it; with another partitioner give
    ``partition``.

    Each method raises :class:`~kafkaclient.errors.StoreUnavailableError` if the key is not here.
    Its ``instance`` is the address of the instance that has the key, so that the caller can forward
    the query. ConfigError: the store has no such ``partition``.
    """

    def __init__(self, declared: Store[K, V], queries: Callable[[], Queries]) -> None:
        self._declared = declared
        self._queries = queries

    def __repr__(self) -> str:
        return f"<ReadOnlyStore {self._declared.name!r}>"

    @overload
    def get(self, key: K, *, partition: int | None = None) -> V | None: ...
    @overload
    def get(self, key: K, default: D, *, partition: int | None = None) -> V | D: ...
    def get(self, key: K, default: Any = None, *, partition: int | None = None) -> Any:
        """The key's committed value, or ``default``."""
        queries = self._queries()
        task = queries.task_of(self._declared, key, partition)
        written = self._declared.key.write(key)
        assert written is not None  # a store's types do not allow None
        found = queries.local(self._declared.name, task).stored.get(written)
        return default if found is None else self._declared.value.read(found)

    def __getitem__(self, key: K) -> V:
        found = self.get(key, _ABSENT)
        if found is _ABSENT:
            raise KeyError(key)
        return found

    def __contains__(self, key: K) -> bool:
        return self.get(key, _ABSENT) is not _ABSENT

    def items(
        self, start: K | None = None, end: K | None = None, *, partition: int | None = None
    ) -> Iterator[tuple[K, V]]:
        """All pairs that this instance has with ``start <= key < end``, task by task, each in the
        order of the keys' bytes. ``partition``: only of this partition. A task that moves away
        during the iteration ends it with StoreUnavailableError."""
        queries, declared = self._queries(), self._declared
        first, last = (None if key is None else declared.key.write(key) for key in (start, end))
        tasks = queries.local_tasks(declared.name)
        if partition is not None:
            tasks = [queries.task_of(declared, None, partition)]
        for task in tasks:
            queries.local(declared.name, task)
        return self._items(queries, tasks, first, last)

    def __iter__(self) -> Iterator[K]:
        return (key for key, _ in self.items())

    def _items(
        self, queries: Queries, tasks: list[TaskId], first: bytes | None, last: bytes | None
    ) -> Iterator[tuple[K, V]]:
        declared = self._declared
        for task in tasks:
            store = queries.local(declared.name, task)
            for key, value in store.stored.items(first):
                if last is not None and key >= last:
                    break
                yield declared.key.read(key), declared.value.read(value)
                _check_same(queries.local(declared.name, task), store, task)
            _check_same(queries.local(declared.name, task), store, task)  # closing it ends the loop


def _check_same(found: TaskStore, store: TaskStore, task: TaskId) -> None:
    if found is not store:
        raise StoreUnavailableError(
            f"task {task} was restored again during the iteration: iterate again"
        )
