"""The offsets and lags of a consumer group, for ``kafkaclient groups``."""

from __future__ import annotations

import json
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from kafkaclient.broker_errors import ErrorCode, broker_error
from kafkaclient.cli.output import FAILED, joined, print_message
from kafkaclient.errors import BrokerError, ConfigError
from kafkaclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from kafkaclient.admin import Admin
    from kafkaclient.wire.groups import DescribedGroup


class Lag(NamedTuple):
    """How far a group is in a partition."""

    partition: TopicPartition
    committed: int | None
    end: int | None
    """None without a leader, or if the topic is deleted."""
    is_deleted: bool = False

    @property
    def lag(self) -> int | None:
        if self.committed is None or self.end is None:
            return None
        return max(self.end - self.committed, 0)

    def as_json(self) -> dict[str, Any]:
        where = self.partition._asdict()
        return {**where, "committed": self.committed, "end": self.end, "lag": self.lag}


class Change(NamedTuple):
    """A partition's committed offset, None if there is none, and the new one."""

    partition: TopicPartition
    before: int | None
    after: int

    def as_json(self) -> dict[str, Any]:
        return {**self.partition._asdict(), "committed": self.before, "new": self.after}


async def existing_group(admin: Admin, group: str, remedy: str = "") -> DescribedGroup:
    """Raises GROUP_ID_NOT_FOUND, which names the group of a similar name."""
    found = await admin.describe_group(group)
    if found.state == "Dead":
        near = get_close_matches(group, (each.group_id for each in await admin.list_groups()), 1)
        meant = f"; did you mean {near[0]}?" if near else ""
        advice = f"there is no such group{meant}{remedy}"
        raise broker_error(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group}", advice=advice)
    return found


async def lags_of(admin: Admin, group: str, owned: Iterable[TopicPartition] = ()) -> list[Lag]:
    """Of each partition with a committed offset, or with an owner. Raises GROUP_ID_NOT_FOUND
    without a group."""
    committed = await admin.committed_offsets(group)
    wanted = sorted({*committed, *owned})
    if not wanted:
        await existing_group(admin, group)
    ends = await admin.end_offsets(wanted, read_committed=False)
    topics = {each.topic for each in ends}
    if len(ends) < len(wanted):  # deleted, or without a leader
        topics = set(await admin.list_topics())
    return [
        Lag(each, committed.get(each), ends.get(each), each.topic not in topics) for each in wanted
    ]


async def lags_of_each(admin: Admin, groups: Iterable[str]) -> dict[str, list[Lag]]:
    """Raises as :func:`lags_of`."""
    return {group: await lags_of(admin, group) for group in groups}


async def lags_of_all(admin: Admin) -> dict[str, list[Lag]]:
    """Of all groups that commit offsets. Names a group whose lag cannot be read, and goes on."""
    lags = {}
    for group, _protocol, _state, kind in await admin.list_groups():
        if kind.lower() != "share":
            try:
                lags[group] = await lags_of(admin, group)
            except BrokerError as error:  # such as: deleted meanwhile
                print_message("warning", error)
    return lags


def say_unknown(lags: Iterable[Lag]) -> None:
    """Name the partitions without a leader: the lag does not count them."""
    unknown = [each.partition for each in lags if each.end is None and not each.is_deleted]
    if unknown:
        print_message("warning", f"no leader, and so no lag is known: {joined(unknown)}")


async def left_out(
    admin: Admin, wanted: Iterable[TopicPartition], found: Iterable[TopicPartition]
) -> dict[TopicPartition, str]:
    """Why each of the wanted partitions is not among the found ones."""
    missing = sorted({*wanted} - {*found})
    topics = set(await admin.list_topics()) if missing else set()
    return {
        each: "it has no leader" if each.topic in topics else "its topic is deleted"
        for each in missing
    }


def say_left_out(causes: Mapping[TopicPartition, str]) -> None:
    """Name the partitions that a command left out; exit with 1 if there are any."""
    for each, why in causes.items():
        print_message("error", f"left out: {each}: {why}")
    if causes:
        raise typer.Exit(FAILED)


def lag_by_topic(group: str, lags: Iterable[Lag]) -> list[tuple[str, str, int, int]]:
    topics: dict[str, list[int]] = {}
    for each in lags:
        topics.setdefault(each.partition.topic, []).append(each.lag or 0)
    return [(group, topic, len(found), sum(found)) for topic, found in topics.items()]


async def chosen_partitions(
    admin: Admin, texts: list[str] | None, known: Iterable[TopicPartition]
) -> list[TopicPartition]:
    """The partitions of ``--topic``; without it those with an offset."""
    if not texts:
        return list(known)
    names = [text.partition(":")[0] for text in texts]
    topics = await admin.describe_topics(names)
    everything = [
        TopicPartition(topic.name, each.partition)
        for topic in topics.values()
        for each in topic.partitions
    ]
    return partitions_named(texts, everything)


def partitions_named(texts: Iterable[str], known: Iterable[TopicPartition]) -> list[TopicPartition]:
    chosen = []
    everything = set(known)
    for text in texts:
        topic, colon, numbers = text.partition(":")
        try:
            wanted = {int(number) for number in numbers.split(",")} if colon else None
        except ValueError:
            raise ConfigError(f"{text!r}: give TOPIC or TOPIC:0,1") from None
        found = [
            each
            for each in everything
            if each.topic == topic and (wanted is None or each.partition in wanted)
        ]
        if wanted and len(found) < len(wanted):
            missing = sorted(wanted - {each.partition for each in found})
            raise ConfigError(f"{text!r}: there is no partition {missing[0]}")
        chosen += found
    return sorted(set(chosen))


def read_offsets(file: Path) -> dict[TopicPartition, int]:
    try:
        rows = json.loads(file.read_text("utf-8"))["partitions"]
        return {
            TopicPartition(row["topic"], row["partition"]): row.get("new", row["committed"])
            for row in rows
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f'{file} has no offsets ({error!r}): it has {{"partitions": [{{"topic": "t", '
            '"partition": 0, "committed": 5}}]}, or "new" in place of "committed"'
        ) from error
