"""Whether a log has become shorter: one low answer of one broker is not believed.

A broker that was paused or cut off, and does not know yet that another one leads the partition now,
answers ListOffsets with its own, lower end. Its leader epoch is no proof: the metadata may come
from the same broker.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from kafkaclient.types import TopicPartition

_LOW_ANSWERS = 3  # in a row, before a log counts as shorter
_PAUSE_S = 1.0  # between them; a broker that goes on after a pause knows its leaders within ms


class FetchEnds(Protocol):
    """End offsets of partitions, from leaders of fresh metadata: by default the last stable
    offsets, else the high watermarks."""

    async def __call__(
        self, partitions: Collection[TopicPartition], *, read_committed: bool = True
    ) -> dict[TopicPartition, int]: ...


async def ends_from(
    fetch_ends: FetchEnds, known: Mapping[TopicPartition, int], *, read_committed: bool = True
) -> dict[TopicPartition, int]:
    """The partitions' end offsets, given an offset of each that its log has had.

    An end lower than the known offset is returned only if all ``_LOW_ANSWERS`` are so low: records
    were lost, or the topic was created again. With ``read_committed``, the known offset itself is
    returned while an open transaction begins before it. Raises as ``fetch_ends``.
    """
    found: dict[TopicPartition, int] = {}
    low = set(known)
    for answers in range(_LOW_ANSWERS):
        if answers:
            await asyncio.sleep(_PAUSE_S)
        found |= await fetch_ends(low, read_committed=read_committed)
        low = {tp for tp in low if found.get(tp, known[tp]) < known[tp]}
        if low and read_committed:
            for tp, end in (await fetch_ends(low, read_committed=False)).items():
                if end >= known[tp]:
                    found[tp] = known[tp]
                    low.discard(tp)
        if not low:
            break
    return found
