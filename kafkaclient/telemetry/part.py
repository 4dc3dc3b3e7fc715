"""What the recorder hands to a store: the rows of one file or message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from kafkaclient.telemetry.rows import Columns


class PartRefusedError(Exception):
    """A part can never be written, whatever the state of the store: it is too large, or cannot be
    converted."""


@dataclass(slots=True)
class Part:
    """The rows of one file or message."""

    name: str
    """Unique among all parts of all producers: ``batches-CLIENT-UNIQUE-NUMBER``."""
    hour: datetime
    """The start of the UTC hour in which all batches of the part had their outcome."""
    columns: Columns
    metadata: Mapping[str, str]

    def encode(self, form: Callable[[pa.Table], bytes]) -> bytes:
        """The content of a file or a message. Raises PartRefusedError."""
        try:
            return form(self.columns.table(self.metadata))
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise PartRefusedError(f"they cannot be encoded: {type(error).__name__}") from error


class Store(Protocol):
    """Where parts are written, one at a time."""

    @property
    def rows_per_part(self) -> int:
        """How many rows make a part."""

    @property
    def seconds_per_part(self) -> float:
        """How long after its first row a part is to be written."""

    async def write(self, part: Part) -> None:
        """Write the part. Raises PartRefusedError; any other Exception: try again later. A part
        that was written before may be written again."""

    async def close(self) -> None:
        """Free what the store holds. Raises nothing."""
