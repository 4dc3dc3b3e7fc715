"""Reassignment plans, their moves, and the JSON format of Kafka's tool. No I/O."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

from kafkaclient.admin.placement import Start, assign
from kafkaclient.broker_errors import ErrorCode, broker_error
from kafkaclient.errors import BrokerError, ConfigError
from kafkaclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Mapping, Sequence
    from random import Random

    from kafkaclient.wire.admin import OngoingReassignment
    from kafkaclient.wire.api import PartitionView


# --- The source and destination replicas of a reassignment ----------------------------------------
# Java: ``ReassignPartitionsCommand.calculateProposedMoveMap``, ``calculateLeaderThrottles`` and
# ``calculateFollowerThrottles``.


class Move(NamedTuple):
    """The brokers from which a partition's new replicas may copy, and the brokers that get them."""

    sources: frozenset[int]
    destinations: frozenset[int]


def current_move(ongoing: OngoingReassignment) -> Move:
    """The move of an ongoing reassignment."""
    adding = frozenset(ongoing.adding)
    return Move(frozenset(ongoing.replicas) - adding, adding)


def move_map(
    ongoing: Mapping[TopicPartition, OngoingReassignment],
    proposed: Mapping[TopicPartition, Sequence[int]],
    present: Mapping[TopicPartition, Sequence[int]],
) -> dict[TopicPartition, Move]:
    """The proposed moves, and the ongoing moves of other partitions. ``present`` has the current
    replicas of the proposed partitions.

    Every replica that a partition has before its move is a source, because it may become leader.
    """
    moves = {partition: current_move(state) for partition, state in ongoing.items()}
    for partition, target in proposed.items():
        underway = moves.get(partition)
        sources = frozenset(present[partition]) if underway is None else underway.sources
        moves[partition] = Move(sources, frozenset(target) - sources)
    return moves


def throttle_map(
    moves: Mapping[TopicPartition, Move],
    ongoing: Mapping[TopicPartition, OngoingReassignment],
    proposed: Mapping[TopicPartition, Sequence[int]],
) -> dict[TopicPartition, Move]:
    """The replicas to throttle for ``moves``. An ongoing reassignment may be complete before the
    controller gets the partition's new target: its new replicas are then the sources."""
    found = dict(moves)
    for partition in ongoing.keys() & proposed.keys():
        state, (sources, destinations) = ongoing[partition], moves[partition]
        completed = frozenset(state.replicas) - frozenset(state.removing)
        later = frozenset(proposed[partition]) - completed
        found[partition] = Move(sources | completed, destinations | later)
    return found


def bootstrap_map(
    brokers: Iterable[int], present: Mapping[TopicPartition, Sequence[int]]
) -> dict[TopicPartition, Move]:
    """The moves of brokers that are empty or far behind (KIP-73, question 2). All their replicas
    are destinations, the other replicas of the same partitions are sources."""
    joining = frozenset(brokers)
    return {
        partition: Move(frozenset(replicas) - joining, joining & frozenset(replicas))
        for partition, replicas in present.items()
        if not joining.isdisjoint(replicas)
    }


def in_sync(view: PartitionView, live: Container[int]) -> frozenset[int]:
    """The in-sync replicas on brokers that are up. The ISR may still have its last, dead leader."""
    return frozenset(node for node in view.replicas if node in view.isr and node in live)


def leaves_fewer_in_sync(
    view: PartitionView, move: Move, target: Sequence[int], live: Container[int]
) -> bool:
    """Whether a move removes live in-sync replicas without replacement, and keeps a replica that
    is down or not in sync. New replicas are in sync at the end, or the move does not end."""
    now, new = in_sync(view, live), new_brokers(move)
    kept = frozenset(target) - new
    return not kept <= now and len(kept & now) + len(new) < len(now)


def leader_replicas(moves: Mapping[TopicPartition, Move]) -> dict[str, tuple[str, ...]]:
    """By topic, the elements of ``leader.replication.throttled.replicas``, in Kafka's order."""
    return _elements({partition: move.sources for partition, move in moves.items()})


def follower_replicas(moves: Mapping[TopicPartition, Move]) -> dict[str, tuple[str, ...]]:
    """By topic, the elements of ``follower.replication.throttled.replicas``, in Kafka's order."""
    return _elements({partition: move.destinations for partition, move in moves.items()})


def new_brokers(move: Move) -> frozenset[int]:
    """The brokers that get a new replica."""
    return move.destinations - move.sources


def moving_brokers(moves: Mapping[TopicPartition, Move]) -> frozenset[int]:
    """All source and destination brokers."""
    return frozenset().union(*(move.sources | move.destinations for move in moves.values()))


def _elements(brokers: Mapping[TopicPartition, Iterable[int]]) -> dict[str, tuple[str, ...]]:
    found: dict[str, set[str]] = defaultdict(set)
    for (topic, partition), nodes in brokers.items():
        found[topic].update(f"{partition}:{node}" for node in nodes)
    # Kafka's tool also sorts as text: 10:1 is before 2:1.
    return {topic: tuple(sorted(elements)) for topic, elements in found.items() if elements}


# --- Reassignment plans, and their JSON format of Kafka's tool. No I/O ----------------------------

ANY_LOG_DIR = "any"

_VERSION = 1


@dataclass(frozen=True, slots=True)
class ReassignmentPlan:
    """The target replicas of partitions, the preferred leader first.

    ``log_dirs`` has the log directories in a plan of Kafka's tool, for partitions where not all are
    ``any``. This package does not move replicas between log directories.
    """

    replicas: Mapping[TopicPartition, tuple[int, ...]]
    log_dirs: Mapping[TopicPartition, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def from_json(cls, text: str | bytes) -> ReassignmentPlan:
        """A plan in the format of ``kafka-reassign-partitions``. Raises ConfigError for an invalid
        plan, and for a plan without partitions."""
        entries = [_entry(entry) for entry in _versioned(text, "partitions")]
        if twice := _duplicates(str(partition) for partition, _, _ in entries):
            raise ConfigError(
                f"Partition reassignment contains duplicate topic partitions: {twice}"
            )
        plan = cls(
            {partition: nodes for partition, nodes, _ in entries},
            {p: dirs for p, _, dirs in entries if any(path != ANY_LOG_DIR for path in dirs)},
        )
        plan.check_not_empty()
        return plan

    def as_dict(self) -> dict[str, Any]:
        """The JSON object of :meth:`to_json`."""
        return {
            "version": _VERSION,
            "partitions": [
                {
                    **partition._asdict(),
                    "replicas": list(nodes),
                    "log_dirs": list(self.log_dirs.get(partition) or [ANY_LOG_DIR] * len(nodes)),
                }
                for partition, nodes in sorted(self.replicas.items())
            ],
        }

    def to_json(self) -> str:
        """The plan as Kafka's tool writes it: sorted, with ``log_dirs``."""
        return json.dumps(self.as_dict(), separators=(",", ":"))

    def check(self) -> None:
        """Raise ConfigError if the plan cannot be executed, with the checks of Kafka's tool."""
        self.check_not_empty()
        for partition, nodes in self.replicas.items():
            if not nodes:
                raise ConfigError(f"Partition replica list cannot be empty for {partition}")
            if twice := _duplicates(nodes):
                raise ConfigError(
                    "Partition replica lists may not contain duplicate entries: "
                    f"{partition} contains multiple entries for {twice}"
                )
        if self.log_dirs:
            named = _joined(self.log_dirs)
            raise ConfigError(
                f"the plan names log directories ({named}), but kafkaclient does not move replicas "
                'between log directories. Remove "log_dirs", or use kafka-reassign-partitions'
            )

    def check_not_empty(self) -> None:
        """Raise ConfigError for a plan without partitions."""
        if not self.replicas:
            raise ConfigError("Partition reassignment list cannot be empty")


def parse_topics(text: str | bytes) -> list[str]:
    """The topics of a ``--topics-to-move-json-file``; raises ConfigError."""
    names: list[str] = []
    for entry in _versioned(text, "topics"):
        if not isinstance(entry, dict) or not isinstance(entry.get("topic"), str):
            raise ConfigError(f'a topic to move is {{"topic": NAME}}, not {entry!r}')
        names.append(entry["topic"])
    if twice := _duplicates(names):
        raise ConfigError(f"List of topics to reassign contains duplicate entries: {twice}")
    return names


def parse_broker_list(text: str) -> list[int]:
    """The broker ids of a comma-separated list. Raises ConfigError."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() for word in words):
        raise ConfigError(f"{text!r} is not a comma-separated list of broker ids, as in 0,1,2")
    brokers = [int(word) for word in words]
    if twice := _duplicates(brokers):
        raise ConfigError(f"Broker list contains duplicate entries: {twice}")
    return brokers


def generate(
    present: Mapping[TopicPartition, Sequence[int]],
    racks: Mapping[int, str | None],
    *,
    rng: Random,
    rack_aware: bool = True,
) -> dict[TopicPartition, tuple[int, ...]]:
    """A KIP-36 placement of the topics in ``present`` on the brokers in ``racks``, as Kafka's
    ``--generate`` proposes it. The placement ignores the current replicas and has a random start.
    Each partition keeps its replication factor (Java: all get that of the topic's first partition).

    Raises ConfigError if only some of the brokers have a rack, and the broker's
    INVALID_REPLICATION_FACTOR if there are too few brokers.
    """
    topics: dict[str, list[TopicPartition]] = defaultdict(list)
    for partition in sorted(present):
        topics[partition.topic].append(partition)
    brokers = {node: rack if rack_aware else None for node, rack in sorted(racks.items())}
    if 0 < sum(rack is not None for rack in brokers.values()) < len(brokers):
        without = _joined(node for node, rack in brokers.items() if rack is None)
        raise ConfigError(
            f"not all brokers have a rack: broker {without} has none. Use --disable-rack-aware to "
            "ignore racks"
        )
    proposed: dict[TopicPartition, tuple[int, ...]] = {}
    for topic, partitions in topics.items():
        factor = max(len(present[partition]) for partition in partitions)
        if factor > len(brokers):
            raise _too_few_brokers(factor, len(brokers), f"topic {topic!r}")
        start = Start(rng.randrange(len(brokers)), rng.randrange(len(brokers)))
        rows = assign(brokers, len(partitions), factor, start)
        for partition, row in zip(partitions, rows, strict=True):
            proposed[partition] = row[: len(present[partition])]
    return proposed


def with_replication_factor(
    present: Mapping[TopicPartition, PartitionView],
    racks: Mapping[int, str | None],
    usable: Collection[int],
    factor: int,
    *,
    rng: Random,
) -> dict[TopicPartition, tuple[int, ...]]:
    """The same partitions with replicas added or removed; the other replicas stay. ``racks`` has
    the brokers that are up, ``usable`` those of them that may get new replicas.

    A new replica goes to a rack without a replica if possible, and there to a broker with the
    fewest replicas. Replicas on brokers that are down are removed first, then replicas that are not
    in sync, then the last replica in a rack with several replicas, then the last replica. If the
    broker of the first replica is down, live in-sync replicas come first. Raises the broker's
    INVALID_REPLICATION_FACTOR if there are too few brokers.
    """
    if not 0 < factor <= len(racks):
        raise _too_few_brokers(factor, len(racks))
    hosted: Counter[int] = Counter(node for view in present.values() for node in view.replicas)
    proposed: dict[TopicPartition, tuple[int, ...]] = {}
    for partition, view in sorted(present.items()):
        chosen, healthy = list(view.replicas), in_sync(view, racks)
        while len(chosen) > factor:
            chosen.remove(_replica_to_remove(chosen, racks, healthy))
        hosted.subtract(set(view.replicas) - set(chosen))
        while len(chosen) < factor:
            others = [node for node in usable if node not in chosen]
            if not others:
                raise _too_few_brokers(factor, len(usable), str(partition))
            # A random broker of several: else each topic of a plan of its own gets the same one.
            rng.shuffle(others)
            used = {racks.get(node) for node in chosen}
            chosen.append(min(others, key=lambda node: (racks[node] in used, hosted[node])))
        hosted.update(set(chosen) - set(view.replicas))
        if chosen[0] not in racks:
            chosen.sort(key=lambda node: node not in healthy)
        proposed[partition] = tuple(chosen)
    return proposed


def _too_few_brokers(factor: int, brokers: int, what: str = "") -> BrokerError:
    advice = f"Replication factor: {factor} larger than available brokers: {brokers}"
    return broker_error(ErrorCode.INVALID_REPLICATION_FACTOR, what, advice=advice)


def _replica_to_remove(
    chosen: Sequence[int], racks: Mapping[int, str | None], healthy: Collection[int]
) -> int:
    shared = Counter(racks.get(node) for node in chosen)

    def worth(node: int) -> tuple[bool, ...]:
        # Of equal replicas the first one stays, because it is the preferred leader.
        alone = shared[racks.get(node)] == 1
        return (node in racks, node in healthy, node == chosen[0], alone)

    return min(reversed(chosen), key=worth)


def _versioned(text: str | bytes, name: str) -> list[Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the reassignment is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise ConfigError('the reassignment is not a JSON object with "version"')
    version = document.get("version", _VERSION)
    if version != _VERSION:
        raise ConfigError(f"Not supported version field value {version}")
    found = document.get(name, [])
    if not isinstance(found, list):
        raise ConfigError(f'"{name}" in the reassignment must be a list')
    return found


def _entry(entry: Any) -> tuple[TopicPartition, tuple[int, ...], tuple[str, ...]]:
    if not isinstance(entry, dict):
        raise ConfigError(f"a partition is a JSON object, not {entry!r}")
    topic, partition = entry.get("topic"), entry.get("partition")
    nodes = entry.get("replicas")
    if not isinstance(topic, str) or not _is_number(partition) or not isinstance(nodes, list):
        raise ConfigError(
            'a partition has "topic", "partition" and "replicas", as in {"topic":"foo",'
            f'"partition":1,"replicas":[1,2,3]}}: not {json.dumps(entry)}'
        )
    if not all(_is_number(node) for node in nodes):
        raise ConfigError(f"replicas must be broker ids, not {json.dumps(nodes)}")
    dirs = entry.get("log_dirs") or [ANY_LOG_DIR] * len(nodes)
    if not isinstance(dirs, list) or len(dirs) != len(nodes):
        raise ConfigError(
            f"Size of replicas list {nodes} is different from size of log dirs list {dirs} for "
            f"partition {topic}-{partition}"
        )
    for path in dirs:
        if not isinstance(path, str) or (path != ANY_LOG_DIR and not path.startswith("/")):
            raise ConfigError(f'a log directory must be an absolute path or "any", not {path!r}')
    return TopicPartition(topic, partition), tuple(nodes), tuple(dirs)


def _is_number(value: Any) -> TypeGuard[int]:
    """Whether the value can be a partition or a broker id."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def _joined(values: Iterable[Any]) -> str:
    return ",".join(map(str, sorted(values)))


def _duplicates(values: Iterable[Any]) -> str:
    return _joined(value for value, count in Counter(values).items() if count > 1)
