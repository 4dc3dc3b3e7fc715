"""What writes parts: files (file_store.py), or messages (topic_store.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kafkaclient.telemetry.part import Part


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
