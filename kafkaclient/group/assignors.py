"""The assignors of classic consumer groups. Pure.

Each assigns every partition of the members' topics to one member that subscribes to the topic.
Members are served in the order of the mapping.
Their names, and the user data of the sticky ones, are those of Java's assignors, so that Java's
members, and others that have these assignors, can be in the same group.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import cycle
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from kafkaclient.errors import ProtocolError
from kafkaclient.types import TopicPartition
from kafkaclient.wire.api import INT32, by_topic, string
from kafkaclient.wire.reader import FieldReader

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

COOPERATIVE_STICKY = "cooperative-sticky"
STICKY = "sticky"

_MIN_TOPIC = 6  # bytes


class AssignedMember(NamedTuple):
    """A member, as its leader knows it."""

    topics: Collection[str]
    owned: Collection[TopicPartition] = ()
    """What the member has, or had in the last generation."""


Members: TypeAlias = "Mapping[str, AssignedMember]"
Assignment: TypeAlias = "dict[str, set[TopicPartition]]"


def assign_range(members: Members, counts: Mapping[str, int]) -> Assignment:
    """Each topic on its own: consecutive partitions, the first members get one more (Java:
    ``RangeAssignor``)."""
    found: Assignment = {name: set() for name in members}
    for topic, count in counts.items():
        takers = [name for name in members if topic in members[name].topics]
        begin = 0
        for index, name in enumerate(takers):
            share, rest = divmod(count, len(takers))
            end = begin + share + (index < rest)
            found[name] |= {TopicPartition(topic, number) for number in range(begin, end)}
            begin = end
    return found


def assign_round_robin(members: Members, counts: Mapping[str, int]) -> Assignment:
    """All partitions in turn, to the next member that subscribes to the topic (Java:
    ``RoundRobinAssignor``)."""
    found: Assignment = {name: set() for name in members}
    turns = cycle(members)
    subscribed = {topic for member in members.values() for topic in member.topics}
    for topic in sorted(subscribed & counts.keys()):
        for number in range(counts[topic]):
            name = next(name for name in turns if topic in members[name].topics)
            found[name].add(TopicPartition(topic, number))
    return found


def assign_sticky(members: Members, counts: Mapping[str, int]) -> Assignment:
    """As balanced as the subscriptions allow, and then as little movement as possible (Java:
    ``AbstractStickyAssignor``). ``owned`` of the members must not overlap."""
    takers = {topic: [n for n in members if topic in members[n].topics] for topic in counts}
    partitions = [
        TopicPartition(topic, number)
        for topic in sorted(counts, key=lambda topic: (len(takers[topic]), topic))
        if takers[topic]
        for number in range(counts[topic])
    ]
    valid = set(partitions)
    owner = {
        partition: name
        for name, member in members.items()
        for partition in member.owned
        if partition in valid and partition.topic in member.topics
    }
    loads = Counter(owner.values())

    def least(partition: TopicPartition) -> str:
        return min(takers[partition.topic], key=loads.__getitem__)

    for partition in partitions:
        if partition not in owner:
            owner[partition] = least(partition)
            loads[owner[partition]] += 1
    moved = True
    while moved:
        moved = False
        for partition in partitions:
            before, after = owner[partition], least(partition)
            if loads[before] > loads[after] + 1:
                owner[partition] = after
                loads[before] -= 1
                loads[after] += 1
                moved = True
    found: Assignment = {name: set() for name in members}
    for partition, name in owner.items():
        found[name].add(partition)
    return found


Assignor: TypeAlias = "Callable[[Members, Mapping[str, int]], Assignment]"
ASSIGNORS: Mapping[str, Assignor] = {
    "range": assign_range,
    "roundrobin": assign_round_robin,
    STICKY: assign_sticky,
    COOPERATIVE_STICKY: assign_sticky,
}


# --- The user data of sticky assignors ------------------------------------------------------------


def sticky_user_data(
    assignor: str, owned: Iterable[TopicPartition], generation_id: int
) -> bytes | None:
    """What a member tells in addition to its subscription. Java's ``StickyAssignor`` sends the last
    assignment (schema version 1), ``CooperativeStickyAssignor`` the generation."""
    if assignor == COOPERATIVE_STICKY:
        return INT32.pack(generation_id)
    if assignor != STICKY:
        return None
    topics = by_topic(sorted(owned))
    out = [INT32.pack(len(topics))]
    for topic, numbers in topics.items():
        out += (string(topic), INT32.pack(len(numbers)), *map(INT32.pack, numbers))
    return b"".join([*out, INT32.pack(generation_id)])


def sticky_owned(user_data: bytes | None) -> tuple[tuple[TopicPartition, ...], int]:
    """The last assignment and generation in the user data of ``sticky``; nothing in user data that
    cannot be read. Java's older versions send no generation, which is -1 then."""
    try:
        reader = FieldReader(user_data or b"\x00\x00\x00\x00", flexible=False)
        found = []
        for _ in reader.array(_MIN_TOPIC):
            topic = reader.string()
            found += [TopicPartition(topic, reader.int32()) for _ in reader.array(4)]
        return tuple(found), reader.int32() if reader.remaining else -1
    except ProtocolError:
        return (), -1


def without_conflicts(
    owned: Mapping[str, tuple[Iterable[TopicPartition], int]],
) -> dict[str, list[TopicPartition]]:
    """What each member owns, from its claims and their generation. If several members claim a
    partition, the one of the latest generation has it; in the same generation, neither."""
    latest: dict[TopicPartition, tuple[int, str | None]] = {}
    for name, (partitions, generation) in owned.items():
        for partition in partitions:
            known, _ = latest.get(partition, (-2, None))
            if generation > known:
                latest[partition] = generation, name
            elif generation == known:
                latest[partition] = generation, None
    found: defaultdict[str, list[TopicPartition]] = defaultdict(list)
    for partition, (_, owner) in latest.items():
        if owner is not None:
            found[owner].append(partition)
    return found
