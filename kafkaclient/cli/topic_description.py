"""``kafkaclient topics describe``: partitions, replicas, and the topics' own settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from kafkaclient.cli.admin import Connect, on_cluster
from kafkaclient.cli.chosen_topics import ChosenTopics, Pattern, Topics, say_failed
from kafkaclient.cli.connection import AsJson
from kafkaclient.cli.output import joined, picked, print_json, print_table
from kafkaclient.errors import KafkaError, counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkaclient.admin import TopicDescription
    from kafkaclient.wire.admin import ConfigEntry
    from kafkaclient.wire.api import PartitionView

IfExists = Annotated[bool, "Do nothing if the topic does not exist."]
ExcludeInternal = Annotated[bool, "Leave out Kafka's own topics."]


@on_cluster
async def describe(
    connect: Connect,
    *,
    names: Topics = None,
    pattern: Pattern = None,
    exclude_internal: ExcludeInternal = False,
    under_replicated_partitions: Annotated[
        bool, "Only partitions with a replica that is not in sync."
    ] = False,
    under_min_isr_partitions: Annotated[
        bool, "Only partitions with fewer replicas in sync than min.insync.replicas."
    ] = False,
    at_min_isr_partitions: Annotated[
        bool, "Only partitions with just min.insync.replicas replicas in sync."
    ] = False,
    unavailable_partitions: Annotated[bool, "Only partitions without a leader."] = False,
    if_exists: IfExists = False,
    as_json: AsJson = False,
) -> None:
    """Show topics: their partitions, their replicas, and the settings that differ from the
    cluster's.

    Examples:

    - `kafkaclient topics describe flights`
    - `kafkaclient topics describe --pattern 'flights.*'`
    - `kafkaclient topics describe --under-replicated-partitions --json`
    """
    by_min_isr = under_min_isr_partitions or at_min_isr_partitions
    only_some = under_replicated_partitions or unavailable_partitions or by_min_isr
    configs: dict[str, dict[str, ConfigEntry] | KafkaError] = {}
    wanted = ChosenTopics.parse(names, pattern)
    async with connect() as admin:
        found = await wanted.described(
            admin, missing_ok=if_exists, left_out=lambda t: exclude_internal and t.internal
        )
        chosen = [t for t in found if not (exclude_internal and t.internal)]
        if by_min_isr or not only_some:
            configs = await admin.describe_topic_configs(t.name for t in chosen)
    ignored = wanted.ignored_errors(if_exists)
    shown = []
    for each in chosen:
        entries = configs.get(each.name, {})
        behind = each.under_replicated if under_replicated_partitions else ()
        leaderless = each.unavailable if unavailable_partitions else ()
        spare = _beyond_min_isr(each, entries) if by_min_isr else {}
        few = {
            p
            for p, more in spare.items()
            if (under_min_isr_partitions and more < 0) or (at_min_isr_partitions and more == 0)
        }
        some = tuple(sorted({*behind, *leaderless, *few}))
        partitions = some if only_some else each.partitions
        if not isinstance(entries, ignored) and (partitions or not only_some):
            shown.append((each, partitions, _own_configs(entries if not only_some else {})))
    if as_json:
        print_json([_topic_json(*each) for each in shown])
    for described in () if as_json else shown:
        _print_topic(*described)
    say_failed(each for each in configs.values() if not isinstance(each, ignored))


def _beyond_min_isr(
    topic: TopicDescription, entries: Mapping[str, ConfigEntry] | KafkaError
) -> dict[PartitionView, int]:
    """How many more replicas than ``min.insync.replicas`` each partition has in sync. Nothing, if
    the setting is not known."""
    entry = None if isinstance(entries, KafkaError) else entries.get("min.insync.replicas")
    if entry is None or entry.value is None:
        return {}
    return {p: len(p.isr) - int(entry.value) for p in topic.partitions}


def _own_configs(entries: Mapping[str, ConfigEntry] | KafkaError) -> dict[str, str] | None:
    """The topic's own configuration; None if it is not known."""
    if isinstance(entries, KafkaError):
        return None
    return {
        name: entry.value or ""
        for name, entry in entries.items()
        if entry.source.name == "DYNAMIC_TOPIC_CONFIG"
    }


def _topic_json(
    topic: TopicDescription,
    partitions: Iterable[PartitionView],
    configs: Mapping[str, str] | None,
) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "topic_id": None if topic.topic_id is None else str(topic.topic_id),
        "internal": topic.internal,
        "partition_count": len(topic.partitions),
        "replication_factor": topic.replication_factor,
        "configs": configs,
        "down_brokers": sorted(topic.down_brokers),
        "partitions": [picked(p, "partition", "leader", "replicas", "isr") for p in partitions],
    }


def _print_topic(
    topic: TopicDescription,
    partitions: Iterable[PartitionView],
    configs: Mapping[str, str] | None,
) -> None:
    words = [
        f"{topic.name}: {counted(len(topic.partitions), 'partition')}, "
        f"replication factor {topic.replication_factor}",
        *(["internal"] if topic.internal else []),
        *(f"{name}={value}" for name, value in (configs or {}).items()),
    ]
    rows = []
    for p in partitions:
        down = topic.down_brokers & set(p.replicas)
        behind = set(p.replicas) - set(p.isr) - down if p.leader >= 0 else ()
        state = "; ".join(
            ["no leader"] * (p.leader < 0)
            + [
                f"{word}: {joined(sorted(some))}"
                for word, some in (("down", down), ("behind", behind))
                if some
            ]
        )
        leader = "none" if p.leader < 0 else p.leader
        rows.append((p.partition, leader, joined(p.replicas), joined(p.isr), state))
    print_table(
        ("partition", "leader", "replicas", "in sync", "state"),
        rows,
        right=("partition", "leader"),
        title=", ".join(words),
    )
