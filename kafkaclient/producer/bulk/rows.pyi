"""Records in bulk: from a list or an Arrow table into the open batches of a topic."""

from typing import Any, TypeAlias

from kafkaclient.producer.batches.batch_result import Run
from kafkaclient.producer.batches.direct_append import TopicAppendSlots

__all__ = ["Rows", "Values"]
Row: TypeAlias = tuple[Any, Any, int | None, int | None, Any]
"(value, key, partition, timestamp, headers), as ``send`` takes them."

class Rows:
    """Records to be sent, numbered from 0. The subclasses know where the records are."""

    def __len__(self) -> int: ...
    def record(self, at: int) -> Row: ...
    def replace(
        self, at: int, value: bytes | None, key: bytes | None, timestamp: int | None, headers: Any
    ) -> None:
        """Replace a record's fields by their serialized, copied or plain form."""

    def check(self, start: int, stop: int, largest: int, partitions: int) -> int:
        """The first row from ``start`` on that cannot be sent as it is, or ``stop``.

        Key, value and headers may take ``largest`` bytes; ``partitions`` is how many there are.
        """

    def pour(
        self, slots: TopicAppendSlots, start: int, stop: int, now: int, runs: list[Run]
    ) -> int:
        """Append rows through the slots, from ``start`` on. Returns the first row that the slots
        cannot take, or ``stop``. ``runs`` is extended by one :data:`Run` for each batch. ``now`` is
        the timestamp of records that have none."""

class Values(Rows):
    """Records of lists, and the fields they share. ``keys`` None: no record has a key. An item of
    ``timestamps`` or ``row_headers`` replaces what the records share, unless it is None."""

    def __init__(
        self,
        values: list[Any],
        keys: list[Any] | None,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Any,
        timestamps: list[Any] | None = None,
        row_headers: list[Any] | None = None,
    ) -> None: ...
    def __len__(self) -> int: ...
    def record(self, at: int) -> Row: ...
    def check(self, start: int, stop: int, largest: int, partitions: int) -> int: ...
    def replace(
        self, at: int, value: bytes | None, key: bytes | None, timestamp: int | None, headers: Any
    ) -> None: ...
