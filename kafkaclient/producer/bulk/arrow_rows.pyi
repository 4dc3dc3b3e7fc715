"""The rows of an Arrow stream, as records in bulk."""

from typing import Any

from kafkaclient.producer.bulk.rows import Row, Rows

__all__ = ["Blobs", "Columns", "HeaderLists", "Numbers"]

class Blobs:
    """A column of byte strings. ``layout``: "offsets32", "offsets64", "fixed" or "views"."""

    items: list[bytes | None]

    def __init__(self, array: Any, layout: str) -> None: ...

class Numbers:
    """A column of 64-bit integers."""

    items: list[int | None]

    def __init__(self, array: Any) -> None: ...

class HeaderLists:
    """A column of lists of headers. ``array`` has the lists; their offsets, less ``base``, are
    indexes of ``names`` and ``contents``. ``entries`` shows which headers are null as a whole."""

    items: list[tuple[tuple[str | None, bytes | None], ...]]

    def __init__(
        self, array: Any, layout: str, base: int, entries: Any, names: Blobs, contents: Blobs
    ) -> None: ...

class Columns(Rows):
    """The rows of a piece of an Arrow stream; a column that is None is null everywhere."""

    def __init__(
        self,
        rows: int,
        key: Blobs | None,
        value: Blobs | None,
        headers: HeaderLists | None,
        timestamps: Numbers | None,
        partitions: Numbers | None,
        timestamp_ms: int | None,
        partition: int | None,
    ) -> None: ...
    def __len__(self) -> int: ...
    def record(self, at: int) -> Row: ...
