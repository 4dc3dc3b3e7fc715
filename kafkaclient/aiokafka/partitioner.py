"""aiokafka's argument ``partitioner`` as an option, and the partition that a record will get."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from aiokafka.partitioner import DefaultPartitioner

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient import ClusterView, LoadView, Producer

__all__ = ["DEFAULT_PARTITIONER", "CallablePartitioner", "option_for", "prediction"]

_Choose: TypeAlias = "Callable[[bytes | None, list[int], list[int]], int]"

DEFAULT_PARTITIONER = DefaultPartitioner()
_BY_KEY = frozenset({"late", "kip794", "sticky", "random"})
"""The values of the option ``partitioner`` that use the hash of a key; the others ignore keys."""


class CallablePartitioner:
    """Calls aiokafka's kind of partitioner, ``choose(key, all_partitions, available)``, for every
    record without an explicit partition."""

    __slots__ = ("choose",)

    def __init__(self, choose: _Choose) -> None:
        self.choose = choose

    def partition(
        self, topic: str, key: bytes | None, _value: object, cluster: ClusterView, _load: LoadView
    ) -> int:
        view = cluster.topics[topic]
        return self.choose(key, list(range(view.partition_count)), list(view.available))


def option_for(partitioner: Any) -> Any:
    """The option ``partitioner`` of :class:`kafkaclient.Producer` for aiokafka's argument.

    None and aiokafka's DefaultPartitioner are kafkaclient's default. It selects the same partition
    for a key (murmur2). A record without key gets its partition when a broker can take the record's
    batch, instead of a random one. kafkaclient's own names and partitioners are passed on.
    """
    if partitioner is None or type(partitioner) is DefaultPartitioner:
        return "late"
    if isinstance(partitioner, str) or hasattr(partitioner, "partition"):
        return partitioner
    return CallablePartitioner(partitioner) if callable(partitioner) else partitioner


def prediction(producer: Producer) -> Callable[..., int | None]:
    """A function like aiokafka's partitioners that tells, before a record is sent, which partition
    the record will get. It returns None if the producer chooses the partition later.

    A partitioner of kafkaclient is not asked beforehand: its answer may depend on the load.
    """
    chosen = producer.config.partitioner
    if isinstance(chosen, CallablePartitioner):
        return chosen.choose
    if (
        isinstance(chosen, str)
        and chosen in _BY_KEY
        and not producer.config.partitioner_ignore_keys
    ):
        return _by_key
    return _chosen_later


def _by_key(key: bytes | None, everything: list[int], available: list[int]) -> Any:
    return None if key is None else DEFAULT_PARTITIONER(key, everything, available)


def _chosen_later(*_: object) -> None:
    return None
