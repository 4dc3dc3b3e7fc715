"""Topics as tables and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkaclient.cli.admin import print_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkaclient.admin import TopicDescription
    from kafkaclient.wire.results import PartitionView

__all__ = ["print_topic", "topic_json"]


def topic_json(
    topic: TopicDescription, partitions: Iterable[PartitionView], configs: Mapping[str, str]
) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "topic_id": None if topic.topic_id is None else str(topic.topic_id),
        "internal": topic.internal,
        "partition_count": len(topic.partitions),
        "replication_factor": topic.replication_factor,
        "configs": dict(configs),
        "partitions": [
            {
                "partition": p.partition,
                "leader": p.leader,
                "replicas": list(p.replicas),
                "isr": list(p.isr),
            }
            for p in partitions
        ],
    }


def print_topic(
    topic: TopicDescription, partitions: Iterable[PartitionView], configs: Mapping[str, str]
) -> None:
    words = [
        f"{topic.name}: {len(topic.partitions)} partitions, "
        f"replication factor {topic.replication_factor}"
    ]
    if topic.internal:
        words.append("internal")
    words += [f"{name}={value}" for name, value in configs.items()]
    rows = []
    for p in partitions:
        behind = sorted(set(p.replicas) - set(p.isr))
        state = "no leader" if p.leader < 0 else f"behind: {_nodes(behind)}" if behind else ""
        leader = "none" if p.leader < 0 else p.leader
        rows.append((p.partition, leader, _nodes(p.replicas), _nodes(p.isr), state))
    print_table(
        {"partition": "right", "leader": "right", "replicas": "", "in sync": "", "state": ""},
        rows,
        title=", ".join(words),
    )


def _nodes(nodes: Iterable[int]) -> str:
    return ",".join(map(str, nodes))
