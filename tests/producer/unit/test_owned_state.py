"""The state of batches, queues, topics and sequences changes by their own methods only."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import kafkaclient.producer
from kafkaclient.producer.batches.batch import ProducerBatch
from kafkaclient.producer.batches.idempotence import PartitionSequence
from kafkaclient.producer.batches.partition_queue import PartitionQueue
from kafkaclient.producer.batches.topic_buffer import TopicBuffer

if TYPE_CHECKING:
    from collections.abc import Iterator

PRODUCER = Path(kafkaclient.producer.__file__).parent
OWNERS = {
    ProducerBatch: "batches/batch.py",
    PartitionQueue: "batches/partition_queue.py",
    PartitionSequence: "batches/idempotence.py",
    TopicBuffer: "batches/topic_buffer.py",
}
CONTAINERS = {"batches", "unacked", "queues", "side_lane_of", "avoided", "awaiting_partitions"}
MUTATORS = {
    *("add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem"),
    *("popleft", "remove", "reverse", "rotate", "setdefault", "sort", "update"),
}
# (end of the receiver, attribute): an attribute of another class with the same name.
NAMESAKES = {
    ("batch_result", "partition"): "BatchResult",
    ("result", "partition"): "BatchResult",
    ("failed", "partition"): "BatchResult",
    ("error", "maybe_written"): "KafkaError",
    ("primary", "bytes_sent"): "BrokerLane",
}
# (file, receiver, attribute): why another class may change the attribute.
ALLOWED: dict[tuple[str, str, str], str] = {}


def owners_of(attribute: str) -> set[str]:
    return {file for owner, file in OWNERS.items() if attribute in attributes(owner)}


def attributes(owner: type) -> tuple[str, ...]:
    names: tuple[str, ...] = vars(owner)["__slots__"]
    return names


def changes(tree: ast.AST) -> Iterator[ast.Attribute]:
    """The attributes that are assigned, deleted or mutated in place, but for those of self."""
    for node in ast.walk(tree):
        target: ast.expr | None = None
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            target = node
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            target = node.value
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in MUTATORS
            and isinstance(node.func.value, ast.Attribute)
            and node.func.value.attr in CONTAINERS
        ):
            target = node.func.value
        if isinstance(target, ast.Attribute) and ast.unparse(target.value) != "self":
            yield target


def foreign_changes(file: str, source: str) -> list[str]:
    """The changes in the file of state that other files own."""
    found = []
    for target in changes(ast.parse(source)):
        owners, receiver = owners_of(target.attr), ast.unparse(target.value)
        if not owners or file in owners:
            continue
        if (receiver.rpartition(".")[2], target.attr) in NAMESAKES:
            continue
        if (file, receiver, target.attr) not in ALLOWED:
            found.append(f"{file}:{target.lineno}: {receiver}.{target.attr}")
    return found


def test_each_class_owns_its_state() -> None:
    found = [
        change
        for path in sorted(PRODUCER.rglob("*.py"))
        for change in foreign_changes(str(path.relative_to(PRODUCER)), path.read_text())
    ]
    assert not found, "call a method of the owner instead: " + ", ".join(found)


@pytest.mark.parametrize(
    "statement",
    [
        "batch.retry_at = 0.0",
        "batch.attempts += 1",
        "batch.queue.typical_batch_size = 1",
        "a, queue.leader = 1, 2",
        "del queue.topic",
        "queue.batches.append(batch)",
        "source.batches.popleft()",
        "topic.awaiting_partitions[0] += 1",
        "queue.sequence.unresolved |= True",
    ],
)
def test_a_change_from_outside_is_found(statement: str) -> None:
    assert foreign_changes("sender/sender.py", statement)


def test_an_owner_may_change_its_state() -> None:
    assert not foreign_changes("batches/batch.py", "parent.attempts = 1")
    assert not foreign_changes("sender/sender.py", "self.batches = []")


def test_namesakes_and_exceptions_are_in_use() -> None:
    found = {
        (str(path.relative_to(PRODUCER)), ast.unparse(target.value), target.attr)
        for path in PRODUCER.rglob("*.py")
        for target in changes(ast.parse(path.read_text()))
    }
    assert NAMESAKES.keys() <= {(receiver.rpartition(".")[2], name) for _, receiver, name in found}
    assert ALLOWED.keys() <= found
