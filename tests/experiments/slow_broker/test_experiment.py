"""The experiment's order of things, on a cluster and with clients made up."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Self

import pytest

from experiments import machine
from experiments.java import JavaOutcome, parse_line
from experiments.readback import ReadBack
from experiments.slow_broker import experiment as module
from experiments.slow_broker.experiment import Experiment
from experiments.slow_broker.plan import Plan
from experiments.slow_broker.results import Results
from experiments.slow_broker.settings import choose
from experiments.topics import ProduceCount
from kafkaclient.errors import BootstrapError, KafkaError
from kafkaclient.perf.traffic import Completed, unheard
from kafkaclient.testing.jvm import Java

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

    from kafkaclient.perf.traffic import KeyValue

JAVA_LINE = (
    "100 records sent, 2045.4 records/sec (1.00 MB/sec), 40.06 ms avg latency, "
    "817.00 ms max latency, 7 ms 50th, 141 ms 95th, 154 ms 99th, 220 ms 99.9th."
)


class World:
    """What happened, in order, and what is to go wrong."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.said: list[str] = []
        self.requests = 0
        self.failing_topic: str | None = None
        self.hanging_topic: str | None = None
        self.refused = {"telemetry"}

    async def produce_count(self, _cluster: object) -> ProduceCount:
        return ProduceCount((self.requests * 100,) * 3, (self.requests,) * 3)

    async def run_java(self, _cluster: object, topic: str, *_: object) -> JavaOutcome:
        self.events.append(f"java to {topic}")
        line = parse_line(JAVA_LINE)
        assert line is not None
        return JavaOutcome(line, line)

    async def run_franz(self, bootstrap: str, topic: str, *_: object) -> JavaOutcome:
        assert bootstrap == "proxied:1"
        self.events.append(f"franz-go to {topic}")
        line = parse_line(JAVA_LINE)
        assert line is not None
        return JavaOutcome(line, None)

    def make_client(
        self, name: str, config: Mapping[str, str], topic: str, _hooks: object = None
    ) -> Client:
        assert config["bootstrap.servers"] == "proxied:1"
        return Client(self, name, config, topic)

    def refusal(self, setting: Any) -> str | None:
        return f"no {setting.name}" if setting.name in self.refused else None


class Client:
    """Acknowledges every record at the loop's next turn."""

    def __init__(self, world: World, name: str, options: Mapping[str, str], topic: str) -> None:
        self.name = name
        self._world, self._topic = world, topic
        self._completed: Completed = unheard
        marked = " with telemetry" if "telemetry" in options else ""
        world.events.append(f"{name} to {topic}{marked}")

    async def start(self, completed: Completed) -> None:
        if self._topic == self._world.failing_topic:
            raise BootstrapError("no broker could be reached")
        if self._topic == self._world.hanging_topic:
            await asyncio.Event().wait()
        self._completed = completed

    async def send(self, records: list[KeyValue], started: float) -> int:
        self._completed(
            started, started + 0.008, len(records), sum(len(v) for _, v in records), None
        )
        return len(records)

    async def flush(self) -> None: ...

    async def stop(self, timeout: float | None = None) -> None:
        self._world.requests += 10

    def traffic(self) -> None: ...


class Cluster:
    bootstrap, proxied_bootstrap, version = "direct:1", "proxied:1", "4.3.1"

    def __init__(self, world: World) -> None:
        self._world = world

    async def __aenter__(self) -> Self:
        self._world.events.append("up")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._world.events.append("down")

    async def delay_produce(self, broker: int, seconds: float) -> None:
        self._world.events.append(f"broker {broker} late by {seconds}")

    def proxy(self, broker: int) -> Proxy:
        return Proxy(self._world, broker)


class Proxy:
    def __init__(self, world: World, broker: int) -> None:
        self._world, self._broker = world, broker

    async def delay_produce(self, seconds: float, *, overlapping: bool) -> None:
        assert overlapping
        self._world.events.append(f"all: {self._broker} late by {seconds}")


async def create_topics(
    _cluster: Cluster, names: list[str], partitions: int, *, config: dict[str, str]
) -> None:
    assert partitions == 3
    assert config == {"max.message.bytes": "2000000"}


async def delete_topics(_cluster: Cluster, names: list[str]) -> None: ...


async def read_back(bootstrap: str, topic: str, sent: list[object]) -> ReadBack:
    assert bootstrap == "direct:1"
    return ReadBack(
        records=len(sent),
        lost=0,
        duplicated=0,
        reordered=0,
        unexpected=0,
        ordered_by="partition",
        records_per_partition=(),
        seconds=0.0,
    )


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World()
    for name, value in {
        "LocalCluster": lambda **_: Cluster(world),
        "produce_count": world.produce_count,
        "create_topics": create_topics,
        "delete_topics": delete_topics,
        "run_java": world.run_java,
        "run_franz": world.run_franz,
        "read_back": read_back,
        "make_client": world.make_client,
        "refusal": world.refusal,
        "_SETTLE_S": 0.0,
    }.items():
        monkeypatch.setattr(module, name, value)
    java = Java("java", 17, 'openjdk version "17"')  # type: ignore[arg-type]
    monkeypatch.setattr(machine, "find_java", lambda: java)
    # Freezing the objects of a whole test session would last for the rest of it.
    monkeypatch.setattr(module.gc, "freeze", lambda: None)
    return world


class Watcher:
    def __init__(self, world: World) -> None:
        self._world = world

    def say(self, text: str) -> None:
        self._world.said.append(text)

    @asynccontextmanager
    async def working(self, text: str, total: int, done: Callable[[], int]) -> AsyncIterator[None]:
        yield
        assert done() == total

    @asynccontextmanager
    async def running(
        self, text: str, number: int, total: int, expected_s: float
    ) -> AsyncIterator[None]:
        self._world.said.append(f"{number}/{total} {text}")
        yield


async def ran(experiment: Experiment) -> Results:
    await experiment.run()
    return experiment.results


def made(world: World, folder: Path, patterns: str = "default", **given: Any) -> Experiment:
    plan = Plan(
        max_message_bytes=2_000_000,
        **{
            "settings": tuple(choose(["java"], f"{patterns},java:adaptive linger 5")),
            "rates": (2000.0,),
            "seconds": 0.05,
            **given,
        },
    )
    return Experiment(plan, folder, Watcher(world))


def summary(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "summary.json").read_text()))


async def test_the_brokers_are_warm_before_one_of_them_is_slow(
    world: World, tmp_path: Path
) -> None:
    results = await ran(made(world, tmp_path, repeat=2))
    assert world.events == [
        "up",
        "kafkaclient to slow-broker-0",
        "broker 0 late by 0.02",
        "kafkaclient to slow-broker-1",
        "java to slow-broker-2",
        "kafkaclient to slow-broker-3",
        "java to slow-broker-4",
        "down",
    ]
    assert [(run.client, run.run) for run in results.runs] == [
        ("kafkaclient", 1),
        ("java", 1),
        ("kafkaclient", 2),
        ("java", 2),
    ]
    assert results.complete
    assert summary(tmp_path)["complete"]


async def test_every_broker_is_late_as_an_object_store_is(world: World, tmp_path: Path) -> None:
    results = await ran(made(world, tmp_path, all_late=True, delay_ms=400.0))
    assert world.events[2:5] == [f"all: {broker} late by 0.4" for broker in range(3)]
    assert "Every broker now answers each Produce 400 ms late" in "\n".join(world.said)
    assert results.plan["all_late"]
    assert summary(tmp_path)["plan"]["all_late"]


async def test_the_proxies_count_for_everybody_and_ours_are_read_back(
    world: World, tmp_path: Path
) -> None:
    ours, java = (await ran(made(world, tmp_path))).runs
    assert (ours.requests_per_broker, ours.bytes_per_broker) == ((10,) * 3, (1000,) * 3)
    assert java.requests_per_broker == (0, 0, 0)
    assert (ours.records, ours.errors, ours.lost, java.lost) == (100, 0, 0, None)
    assert ours.avg_ms == pytest.approx(8)
    saved = summary(tmp_path)
    assert [run["setting"] for run in saved["runs"]] == ["default", "adaptive linger 5"]
    assert [run["records"] for run in saved["steady_state"]] == [75, 100]
    assert saved["machine"]["versions"]["java"] == 'openjdk version "17"'


async def test_franz_go_is_one_of_the_clients_that_cannot_be_read_back(
    world: World, tmp_path: Path
) -> None:
    settings = tuple(choose(["franz-go"], "default,franz-go:linger 5"))
    found = await ran(made(world, tmp_path, settings=settings))
    assert "franz-go to slow-broker-2" in world.events
    record = found.runs[-1]
    assert (record.client, record.setting, record.lost) == ("franz-go", "linger 5", None)
    assert (record.records, record.errors, record.avg_ms) == (100, 0, 40.06)


@pytest.mark.full
async def test_fleets_are_made_of_our_settings(world: World, tmp_path: Path) -> None:
    settings = tuple(choose(["java"], "default,prequal,java:adaptive linger 5"))
    found = await ran(
        made(world, tmp_path, settings=settings, producers=(2,), decisions=False, delay_ms=30.0)
    )
    assert [(fleet.setting, fleet.producers) for fleet in found.fleets] == [
        ("default", 2),
        ("prequal", 2),
    ]
    assert all(fleet.slow_share < 0.3 for fleet in found.fleets)
    assert Results.read(tmp_path).fleets == found.fleets
    assert not any("telemetry" in event for event in world.events)


async def test_what_this_build_refuses_is_left_out_with_the_reason(
    world: World, tmp_path: Path
) -> None:
    world.refused = {"sticky linger 5", "telemetry"}
    results = await ran(made(world, tmp_path, "default,sticky linger 5"))
    assert [(skipped.setting, skipped.reason) for skipped in results.skipped] == [
        ("sticky linger 5", "no sticky linger 5"),
        ("telemetry", "no telemetry"),
    ]
    assert [run.setting for run in results.runs] == ["default", "adaptive linger 5"]
    assert "Left out kafkaclient: sticky linger 5: no sticky linger 5" in world.said


@pytest.mark.full
async def test_our_settings_are_recorded_apart(world: World, tmp_path: Path) -> None:
    world.refused = set()
    results = await ran(made(world, tmp_path, "default,kip794 adaptive linger 5"))
    assert [event for event in world.events if "telemetry" in event] == [
        "kafkaclient to slow-broker-4 with telemetry",
        "kafkaclient to slow-broker-5 with telemetry",
    ]
    assert [recorded.folder for recorded in results.recorded] == [
        "telemetry/default",
        "telemetry/kip794-adaptive-linger-5",
    ]
    assert len(results.runs) == 3


async def test_a_run_that_fails_is_told_and_the_others_go_on(world: World, tmp_path: Path) -> None:
    world.failing_topic = "slow-broker-1"
    results = await ran(made(world, tmp_path))
    assert [run.client for run in results.runs] == ["java"]
    assert next((s.setting, s.rate, s.run) for s in results.skipped) == ("default", 2000, 1)
    assert "no broker could be reached" in summary(tmp_path)["skipped"][0]["reason"]


async def test_when_it_is_cancelled_the_brokers_end_and_what_was_measured_stays(
    world: World, tmp_path: Path
) -> None:
    world.hanging_topic = "slow-broker-3"
    task = asyncio.create_task(made(world, tmp_path, repeat=2).run())
    while "kafkaclient to slow-broker-3" not in world.events:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert world.events[-1] == "down"
    saved = summary(tmp_path)
    assert len(saved["runs"]) == 2
    assert not saved["complete"]


async def test_a_cluster_that_does_not_start_is_the_experiments_error(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(**_: Any) -> Any:
        raise KafkaError("no Java 17 or newer found")

    monkeypatch.setattr(module, "LocalCluster", fails)
    with pytest.raises(KafkaError, match="no Java"):
        await made(world, tmp_path).run()
