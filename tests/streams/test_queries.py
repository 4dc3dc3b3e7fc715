"""Queries of stores, without brokers: which task and which instance have a key."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from kafkaclient.errors import ConfigError, StoreUnavailableError, StreamsError
from kafkaclient.streams import Store, StreamsApp, TaskId
from kafkaclient.streams.group_protocol import HostInfo
from kafkaclient.streams.runtime.queries import Queries, ReadOnlyStore
from kafkaclient.streams.tasks import TaskState
from kafkaclient.types import TopicPartition
from kafkaclient.wire.murmur2 import partition_for_key
from tests.streams.fakes import topology_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COUNTS = Store("counts", key=str, value=int)
HERE, THERE = HostInfo("here", 1), HostInfo("there", 2)
KEYS = ["a", "b", "c", "d", "e", "f"]
PARTITION = {key: partition_for_key(key.encode(), 2) for key in KEYS}
ONE, OTHER = (next(key for key in KEYS if PARTITION[key] == number) for number in (0, 1))


class Stored:
    """The committed pairs of a task."""

    def __init__(self, pairs: dict[str, int]) -> None:
        self.pairs = {key.encode(): b"%d" % value for key, value in pairs.items()}

    def get(self, key: bytes) -> bytes | None:
        return self.pairs.get(key)

    def items(self, start: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        return iter(sorted(p for p in self.pairs.items() if start is None or p[0] >= start))


def task(number: int, pairs: dict[str, int], state: TaskState = TaskState.RUNNING) -> Any:
    store = SimpleNamespace(declared=COUNTS, stored=Stored(pairs))
    is_active = state in (TaskState.RESTORING, TaskState.RUNNING)
    return SimpleNamespace(
        id=TaskId(0, number), state=state, is_active=is_active, lag=7, task_stores=[store]
    )


class World:
    """This instance has task 0 with the pairs of its keys, another one has task 1."""

    def __init__(self) -> None:
        self.tasks = {TaskId(0, 0): task(0, {key: 1 for key in KEYS if not PARTITION[key]})}
        self.partitions = {"words": 2}
        self.hosts = {
            HERE: {TopicPartition("words", 0)},
            THERE: {TopicPartition("words", 1)},
        }
        self.queries = Queries(
            topology_of(lambda *_: None),  # type: ignore[arg-type, return-value]
            self.tasks,
            self,  # type: ignore[arg-type]
            HERE,
        )
        self.store = ReadOnlyStore(COUNTS, lambda: self.queries)


@pytest.fixture
def world() -> World:
    return World()


def test_a_key_of_this_instance(world: World) -> None:
    assert world.store.get(ONE) == 1
    assert world.store[ONE] == 1
    assert ONE in world.store
    own = [key for key in KEYS if PARTITION[key] == 0]
    assert list(world.store) == own
    assert dict(world.store.items()) == dict.fromkeys(own, 1)
    assert dict(world.store.items(own[1], own[2])) == {own[1]: 1}
    missing = next(k for k in map(str, range(99)) if partition_for_key(k.encode(), 2) == 0)
    assert world.store.get(missing) is None
    assert world.store.get(missing, 0) == 0
    assert missing not in world.store
    with pytest.raises(KeyError, match=missing):
        world.store[missing]
    assert world.store.get(OTHER, partition=0) is None  # the caller knows better


def test_a_key_of_another_instance(world: World) -> None:
    with pytest.raises(StoreUnavailableError, match="instance there:2 has it") as caught:
        world.store.get(OTHER)
    assert caught.value.instance == THERE
    assert caught.value.retriable
    assert world.queries.instance_of(TaskId(0, 1)) == THERE
    del world.hosts[THERE]
    with pytest.raises(StoreUnavailableError, match="no application_server") as caught:
        world.store.get(OTHER)
    assert caught.value.instance is None
    with pytest.raises(StoreUnavailableError, match="no application_server"):
        world.queries.instance_of(TaskId(0, 1))


@pytest.mark.parametrize(
    ("state", "told"),
    [(TaskState.RESTORING, "restored here: 7 changes are missing"), (TaskState.STANDBY, "active")],
)
def test_a_task_that_does_not_run_here(world: World, state: TaskState, told: str) -> None:
    world.tasks[TaskId(0, 0)] = task(0, {}, state)
    with pytest.raises(StoreUnavailableError, match=told) as caught:
        world.store.get(ONE)
    assert caught.value.instance is None
    if state is TaskState.RESTORING:
        with pytest.raises(StoreUnavailableError, match=told):
            world.store.items()
    else:
        assert list(world.store.items()) == []


@pytest.mark.parametrize("lag", [0, None])
def test_a_task_that_is_almost_restored(world: World, lag: int | None) -> None:
    world.tasks[TaskId(0, 0)] = restoring = task(0, {}, TaskState.RESTORING)
    restoring.lag = lag
    with pytest.raises(StoreUnavailableError, match=r"is being restored here$"):
        world.store.get(ONE)


def test_a_task_that_moves_during_an_iteration(world: World) -> None:
    pairs = world.store.items()
    next(pairs)
    del world.tasks[TaskId(0, 0)]
    with pytest.raises(StoreUnavailableError, match="not active here"):
        next(pairs)
    world.tasks[TaskId(0, 0)] = task(0, dict.fromkeys(KEYS, 1))
    pairs = world.store.items()
    next(pairs)
    world.tasks[TaskId(0, 0)] = task(0, dict.fromkeys(KEYS, 1))
    with pytest.raises(StoreUnavailableError, match="iterate again"):
        next(pairs)


@pytest.mark.parametrize("partition", [-1, 2, True, "0", 0.0])
def test_impossible_partitions(world: World, partition: Any) -> None:
    with pytest.raises(ConfigError, match="partition"):
        world.store.get(ONE, partition=partition)
    with pytest.raises(ConfigError, match="partition"):
        world.store.items(partition=partition)


def test_a_key_of_another_type(world: World) -> None:
    wrong: Any = 5
    with pytest.raises(TypeError):
        world.store.get(wrong)
    with pytest.raises(TypeError):
        world.store.get(wrong, partition=0)


def test_an_application_that_does_not_run(tmp_path: Path) -> None:
    app = StreamsApp("localhost:9092", application_id="app", state_dir=tmp_path)

    @app.processor("words", key=str, store=COUNTS)
    async def count(record, store, emit) -> None:
        """Nothing is counted."""

    for store in (app.store("counts"), app.store(COUNTS)):
        with pytest.raises(StoreUnavailableError, match="does not run here"):
            store.get(ONE)
    with pytest.raises(StoreUnavailableError, match="does not run here"):
        app.instance_for("counts", ONE)
    for wrong in ("other", 5, Store("more")):
        unknown: Any = wrong
        with pytest.raises(ConfigError, match=r"has no store .*; its stores are: counts"):
            app.store(unknown)
    (tmp_path / "app").mkdir()
    app.clean_up()
    assert list(tmp_path.iterdir()) == []
    app.clean_up()  # there is nothing to remove


@pytest.mark.parametrize("address", ["", "h1", "h1:0", "::1:80", 5, True])
def test_a_wrong_application_server(address: Any) -> None:
    with pytest.raises(ConfigError, match=r"application.server"):
        StreamsApp("localhost:9092", application_id="app", application_server=address)


@pytest.mark.parametrize("option", ["state_listener", "restore_listener"])
@pytest.mark.parametrize("listener", [5, "f", True])
def test_a_wrong_listener(option: str, listener: Any) -> None:
    with pytest.raises(ConfigError, match="listener"):
        StreamsApp("localhost:9092", application_id="app", **{option: listener})


def test_the_error_is_not_an_error_of_the_instance() -> None:
    assert not issubclass(StoreUnavailableError, StreamsError)
