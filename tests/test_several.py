"""A single name where several are meant is refused at once, in every public call."""

from __future__ import annotations

import importlib
import inspect
import re
from typing import TYPE_CHECKING, Any

import aiokafka
import numpy
import pytest

from kafkaclient import SyncConsumer
from kafkaclient.admin import Admin
from kafkaclient.aiokafka import AIOKafkaConsumer
from kafkaclient.consumer import Consumer
from kafkaclient.topic_names import partition_of, several, several_partitions
from kafkaclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MODULES = (
    *("kafkaclient", "kafkaclient.admin.admin", "kafkaclient.aiokafka", "kafkaclient.aws"),
    *("kafkaclient.azure", "kafkaclient.reader", "kafkaclient.schema_registry"),
    *("kafkaclient.spark", "kafkaclient.streams", "kafkaclient.sync", "kafkaclient.testing"),
    *("kafkaclient.testing.fake", "kafkaclient.testing.mock", "kafkaclient.testing.cluster"),
)
SEVERAL = re.compile(
    r"(Iterable|Collection|Sequence|Set)\[(str( \| None)?|TopicPartition|tuple\[str, int\])\]"
)
ADMIN = Admin("broker:9092")  # not started
MADE: dict[str, Any] = {"Admin": ADMIN, "Reassigner": ADMIN.reassigner}


def public_classes() -> Iterator[type]:
    yield type(ADMIN.reassigner)
    yield type(ADMIN.replication_quotas)
    yield Consumer
    for name in MODULES:
        module = importlib.import_module(name)
        for member in map(vars(module).get, getattr(module, "__all__", vars(module))):
            if inspect.isclass(member) and member.__module__.startswith("kafkaclient"):
                yield member


def calls() -> dict[str, tuple[type, Callable[..., Any], inspect.Parameter]]:
    """Each public method with an argument that is several names or partitions."""
    found = {}
    for cls in dict.fromkeys(public_classes()):
        if cls is SyncConsumer:  # its thread, which is not started, asks Consumer
            continue
        for name, method in inspect.getmembers(cls, inspect.isfunction):
            if name.startswith("_") and name != "__init__":
                continue
            for parameter in inspect.signature(method).parameters.values():
                annotation = str(parameter.annotation)
                may_be_single = annotation.startswith("str |")
                if SEVERAL.search(annotation) and not may_be_single:
                    found[f"{cls.__name__}.{name}:{parameter.name}"] = (cls, method, parameter)
    return found


CALLS = calls()


def test_the_walk_finds_the_calls() -> None:
    assert {
        *(
            "Admin.delete_topics:names",
            "Admin.delete_groups:groups",
            "Admin.end_offsets:partitions",
        ),
        *("Admin.alter_configs:delete", "Reassigner.generate:topics", "Reader.list_topics:names"),
        *("FakeCluster.__init__:racks", "LocalCluster.__init__:racks"),
    } <= CALLS.keys()


@pytest.mark.parametrize("call", CALLS)
async def test_a_single_name_is_refused_at_once(call: str) -> None:
    cls, method, parameter = CALLS[call]
    given: dict[str, Any] = {parameter.name: "abc"}
    if method.__name__ == "__init__":
        with pytest.raises((TypeError, ValueError)):
            cls(**given)
        return
    for other in list(inspect.signature(method).parameters.values())[1:]:
        if other.default is other.empty and other.name != parameter.name:
            given[other.name] = None
    instance = MADE.get(cls.__name__) or made(cls)
    advice = r"must be several, not 'abc'.*(\['abc'\]|\[\('abc', 0\)\])$"
    with pytest.raises(TypeError, match=advice):
        await maybe_awaited(method(instance, **given))
    if "TopicPartition" in str(parameter.annotation):
        given[parameter.name] = TopicPartition("t", 3)
        with pytest.raises(TypeError, match="must be several"):
            await maybe_awaited(method(instance, **given))
    if cls is AIOKafkaConsumer:  # as aiokafka's, it warns if it is dropped without stop()
        await instance.stop()


async def maybe_awaited(result: Any) -> None:
    if inspect.isawaitable(result):
        await result


def made(cls: Any) -> Any:
    try:
        return cls()
    except Exception:  # noqa: BLE001 - it needs servers
        return cls("broker:9092")


def test_several_values_are_each_taken_once() -> None:
    assert several(iter(["b", "a", "b"]), "names") == ("b", "a")
    assert several({"b": 1}, "names") == ("b",)
    with pytest.raises(TypeError, match="names must be several"):
        several(b"ab", "names")


@pytest.mark.parametrize(
    "pair", ["t", ("t",), ("t", "0"), ("t", None), ("t", True), (0, "t"), ("t", 0, 1), None, 7]
)
def test_what_is_no_partition_is_named(pair: object) -> None:
    expected = re.escape(
        f"a partition is a pair of topic and number, as ('orders', 0), not {pair!r}"
    )
    with pytest.raises(TypeError, match=expected):
        partition_of(pair)
    with pytest.raises(TypeError, match=expected):
        several_partitions([pair])


def test_partitions_of_other_clients_are_taken() -> None:
    theirs = aiokafka.TopicPartition("t", 1)
    found = several_partitions([("t", numpy.int64(0)), theirs, TopicPartition("t", 1)])
    assert found == (TopicPartition("t", 0), TopicPartition("t", 1))
    assert {type(each) for each in found} == {TopicPartition}
    assert type(found[0].partition) is int
