"""From the arguments of ``send`` into the open batch, for the great majority of records.

An unusual record takes the slow way, through ``admission.py`` and ``accumulator.py``. When the slow
way has put a record into a batch that the next record would join without any further decision, it
installs an :class:`AppendSlot` for that batch. The next records go through the slot straight into
the batch's buffer. Compiled (``_direct_append.pyx``), or its pure-Python twin
(``_direct_append_py.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkaclient.twins import load_twin

if TYPE_CHECKING:
    from kafkaclient.producer.batches._direct_append_py import (
        AppendSlot,
        DirectAppend,
        TopicAppendSlots,
    )
else:
    _twin, _ = load_twin("kafkaclient.producer.batches._direct_append")
    DirectAppend, AppendSlot, TopicAppendSlots = (
        _twin.DirectAppend,
        _twin.AppendSlot,
        _twin.TopicAppendSlots,
    )

__all__ = ["AppendSlot", "DirectAppend", "TopicAppendSlots"]
