"""Faults of coordinator, topics and members; the cluster and the processes are played."""

from __future__ import annotations

import signal
from types import SimpleNamespace
from typing import Any

import pytest

from experiments.consumer_chaos import strikes as module
from experiments.consumer_chaos.strikes import ConsumerStrikes
from experiments.streams_chaos.schedule import Fault, FaultKind
from experiments.strikes import coordinator_partition
from kafkaclient.errors import KafkaError, TopicExistsError


class Played:
    """Notes what is done to it; ``errors`` are raised by the next calls of a method."""

    def __init__(self, done: list[Any], errors: dict[str, list[KafkaError]]) -> None:
        self.done = done
        self.errors = errors
        self.brokers = (0, 1, 2)
        instance = SimpleNamespace(send_signal=done.append, ended=None)
        self.instances = {"instance-1": instance}

    def address(self, broker: int) -> tuple[str, int]:
        return "127.0.0.1", broker

    def resume(self, topic: str) -> None:
        self.done.append(("resume", topic))

    def __getattr__(self, name: str) -> Any:
        async def act(*arguments: Any, **_: Any) -> None:
            if self.errors.get(name):
                raise self.errors[name].pop(0)
            self.done.append((name, *arguments))

        return act


@pytest.fixture
def strike(monkeypatch: pytest.MonkeyPatch) -> Any:
    done: list[Any] = []

    async def leaders(_address: object, _topics: object) -> dict[tuple[str, int], int]:
        return {("__consumer_offsets", number): number % 3 for number in range(6)}

    def noting(name: str) -> Any:
        async def act(_address: object, what: object) -> None:
            done.append((name, what))

        return act

    monkeypatch.setattr(module, "leaders", leaders)
    monkeypatch.setattr(module, "reassign", noting("reassign"))
    monkeypatch.setattr(module, "elect_preferred", noting("elect"))
    monkeypatch.setattr(module, "_RETRY_S", 0)

    async def strike(kind: FaultKind, **errors: list[KafkaError]) -> list[Any]:
        done.clear()
        played: Any = Played(done, errors)
        fault = Fault(at=0.0, kind=kind, which=1, seconds=0.0)
        strikes = ConsumerStrikes(
            *(played, played, {}, [fault], lambda _text: None),
            admin=played,
            load=played,
            topics=["a", "b"],
            partitions=6,
        )
        await strikes.run()
        assert [each.note for each in strikes.struck] == [""]
        assert done.pop() == ("heal",)
        return done

    return strike


async def test_what_each_fault_does(strike: Any) -> None:
    partition = coordinator_partition("consumer-chaos", 6)
    coordinator = partition % 3
    others = [(coordinator + place) % 3 for place in (1, 2, 3)]
    offsets = "__consumer_offsets"
    for kind, expected in {
        FaultKind.CANCEL: [signal.SIGUSR1],
        FaultKind.LEAVE: [signal.SIGUSR2],
        FaultKind.BROKER_KILL: [("kill", 1), ("start_broker", 1)],
        FaultKind.COORDINATOR_KILL: [("kill", coordinator), ("start_broker", coordinator)],
        FaultKind.COORDINATOR_MOVE: [
            ("reassign", {offsets: {partition: others}}),
            ("elect", {offsets: [partition]}),
        ],
        FaultKind.GROW: [("add_partitions", "b", 8)],
        FaultKind.RECREATE: [
            ("hold", "b"),
            ("delete_topic", "b"),
            ("create_topic", "b", 6, 3),
            ("resume", "b"),
        ],
    }.items():
        assert await strike(kind) == expected, kind


async def test_a_topic_is_created_in_spite_of_errors(strike: Any) -> None:
    """A topic that exists already was created by the try before, whose answer was lost."""
    lost = KafkaError("no answer")
    done = await strike(
        FaultKind.RECREATE,
        delete_topic=[lost],
        create_topic=[lost, TopicExistsError("b exists", 36)],
    )
    assert done == [("hold", "b"), ("delete_topic", "b"), ("resume", "b")]


def test_the_partition_of_the_group() -> None:
    """As Java's ``Utils.abs("console-consumer-1".hashCode()) % 50``."""
    assert coordinator_partition("", 50) == 0
    assert coordinator_partition("ab", 50) == (31 * 97 + 98) % 50
    assert coordinator_partition("consumer-chaos", 50) == 1_742_397_719 % 50, "a negative hash code"
