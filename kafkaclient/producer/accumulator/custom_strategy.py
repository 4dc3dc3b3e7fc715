"""The partition strategy that calls a :class:`Partitioner` for every record."""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING, Any, SupportsIndex

from kafkaclient.errors import PartitionerError
from kafkaclient.producer.batches.partition_strategy import PartitionStrategy
from kafkaclient.producer.user_code import text_of_user_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.cluster.view import ClusterView, TopicView
    from kafkaclient.producer.batches.partition_queue import PartitionQueue
    from kafkaclient.producer.batches.record import Record
    from kafkaclient.producer.batches.topic_buffer import TopicBuffer
    from kafkaclient.producer.partitioning.load_view import LoadView
    from kafkaclient.producer.partitioning.partitioners import Partitioner


class CustomPartitioner(PartitionStrategy):
    """Checks each answer of the partitioner. ``cluster()`` returns the current metadata.
    ``may_move``: see :attr:`PartitionStrategy.may_move`.

    A partitioner with a method ``on_new_batch`` is called as Java before 4.0 does: it is asked
    again when a new batch is needed. Others are asked exactly once a record, as in Java 4.x
    (KAFKA-18295).
    """

    __slots__ = ("_cluster", "_load", "_on_new_batch", "_partition", "_topic", "_who", "may_move")

    def __init__(
        self,
        topic: TopicBuffer,
        partitioner: Partitioner,
        cluster: Callable[[], ClusterView],
        load: LoadView,
        *,
        may_move: bool = False,
    ) -> None:
        self._topic = topic
        self.may_move = may_move
        self._cluster = cluster
        self._load = load
        self._who = type(partitioner).__qualname__
        self._partition: Callable[..., Any] = partitioner.partition
        self._on_new_batch: Callable[..., Any] | None = getattr(partitioner, "on_new_batch", None)

    def choose_queue(self, record: Record, view: TopicView) -> PartitionQueue:
        name, count = self._topic.name, view.partition_count
        try:
            answer = self._partition(name, record.key, record.value, self._cluster(), self._load)
            partition = answer if answer.__class__ is int else _as_int(answer)
        except BaseException as error:
            raise self._refused(f"raised {text_of_user_error(error)}") from error
        if partition is None:
            raise self._refused(f"gave a {type(answer).__name__}, not an int")
        if not 0 <= partition < count:
            gave = str(partition) if -(2**63) <= partition < 2**63 else "a huge number"
            raise self._refused(f"gave {gave}, not one of the partitions 0 to {count - 1}")
        return self._topic.queue(partition)

    def queue_for_new_batch(
        self, queue: PartitionQueue, record: Record, view: TopicView
    ) -> PartitionQueue:
        if self._on_new_batch is None:
            return queue
        try:
            self._on_new_batch(self._topic.name, self._cluster(), queue.partition)
        except BaseException as error:
            raise self._refused(f"raised {text_of_user_error(error)} in on_new_batch") from error
        return self.choose_queue(record, view)

    def _refused(self, what: str) -> PartitionerError:
        return PartitionerError(
            f"a record for topic {self._topic.name!r} was not sent: the partitioner {self._who} "
            f"{what}"
        )


def _as_int(answer: object) -> int | None:
    """The answer as an int: numpy's integers are accepted. None: it is a bool, or no number."""
    if isinstance(answer, bool) or not isinstance(answer, SupportsIndex):
        return None
    return index(answer)
