"""What the recorder hands to a store: the rows of one file or message."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from kafkaclient.telemetry.format import EXCLUSIONS_KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from kafkaclient.telemetry.format import Columns


# --- What the recorder hands to a store: the rows of one file or message --------------------------


class PartRefusedError(Exception):
    """A part can never be written, whatever the state of the store: it is too large, or cannot be
    converted."""


class PartTooLargeError(PartRefusedError):
    """The store takes no part of this size; a smaller one may be written."""


@dataclass(slots=True)
class Part:
    """The rows of one file or message."""

    name: str
    """Unique among all parts of all producers: ``batches-CLIENT-UNIQUE-NUMBER``, and ``/1`` or
    ``/2`` for each time that the part was halved."""
    hour: datetime
    """The start of the UTC hour in which all batches of the part had their outcome."""
    columns: Columns
    metadata: Mapping[str, str]

    def encode(self, form: Callable[[pa.Table], bytes]) -> bytes:
        """The content of a file or a message. Raises PartRefusedError."""
        try:
            return form(self.columns.table(self.metadata))
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise PartRefusedError(f"they cannot be encoded: {named(error)}") from error

    @property
    def whole(self) -> str:
        """The name of the part before it was halved."""
        return self.name.partition("/")[0]

    def halves(self) -> tuple[Part, Part]:
        """Two parts with half of the rows each. The exclusions stay with the first."""
        first, second = self.columns.halves()
        rest = {name: text for name, text in self.metadata.items() if name != EXCLUSIONS_KEY}
        return (
            replace(self, name=f"{self.name}/1", columns=first),
            replace(self, name=f"{self.name}/2", columns=second, metadata=rest),
        )


def named(error: Exception) -> str:
    """The error's type and the first line of its text, for the log."""
    return f"{type(error).__name__}: {error}".partition("\n")[0]


# --- What writes parts: files (file_store.py), or messages (topic_store.py) -----------------------


class Store(Protocol):
    """Where parts are written, one at a time."""

    @property
    def rows_per_part(self) -> int:
        """How many rows make a part."""

    @property
    def seconds_per_part(self) -> float:
        """How long after its first row a part is to be written."""

    async def write(self, part: Part) -> None:
        """Write the part. Raises PartRefusedError or PartTooLargeError; any other Exception: try
        again later. A part that was written before may be written again."""

    async def clean(self) -> None:
        """Delete some of what is older than the retention, if it is time. Called after a write, but
        not while the recorder is being closed. Raises nothing."""

    async def close(self) -> None:
        """Free what the store holds. Raises nothing."""
