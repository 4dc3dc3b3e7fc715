"""A partitioner of aiokafka, ``f(key, all_partitions, available)``, as a partitioner of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from aiokafka.partitioner import DefaultPartitioner

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient import ClusterView, LoadView

__all__ = ["CallablePartitioner", "PartitionFunction", "option_for", "partition_function"]

PartitionFunction: TypeAlias = "Callable[[bytes | None, list[int], list[int]], int]"


class CallablePartitioner:
    """Calls aiokafka's kind of partitioner for every record without an explicit partition."""

    __slots__ = ("_choose",)

    def __init__(self, choose: PartitionFunction) -> None:
        self._choose = choose

    def partition(
        self, topic: str, key: bytes | None, _value: object, cluster: ClusterView, _load: LoadView
    ) -> int:
        view = cluster.topics[topic]
        return self._choose(key, list(range(view.partition_count)), list(view.available))


def option_for(partitioner: Any) -> Any:
    """The option ``partitioner`` of :class:`kafkaclient.Producer` for aiokafka's argument.

    None and aiokafka's DefaultPartitioner are kafkaclient's default. It selects the same partition
    for a key (murmur2). A record without key gets its partition when a broker can take the record's
    batch, instead of a random one. kafkaclient's own names and partitioners are passed on.
    """
    if _is_default(partitioner):
        return "late"
    if isinstance(partitioner, str) or hasattr(partitioner, "partition"):
        return partitioner
    return CallablePartitioner(partitioner) if callable(partitioner) else partitioner


def partition_function(partitioner: Any) -> PartitionFunction | None:
    """The function that tells a record's partition beforehand; None: it is not known."""
    if _is_default(partitioner):
        return _by_key
    chosen = option_for(partitioner)
    return partitioner if isinstance(chosen, CallablePartitioner) else None


def _is_default(partitioner: Any) -> bool:
    return partitioner is None or type(partitioner) is DefaultPartitioner


_default = DefaultPartitioner()


def _by_key(key: bytes | None, everything: list[int], available: list[int]) -> Any:
    return None if key is None else _default(key, everything, available)
