"""What the calling threads hand over to the producer's thread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from contextvars import Context

    from kafkaclient.producer.bulk.bulk_delivery import BulkDelivery
    from kafkaclient.producer.producer import Producer
    from kafkaclient.types import HeadersLike

# Plain tuples: a NamedTuple takes as long to make as everything else in a send.
One: TypeAlias = "tuple[str, Any, Any, int | None, int | None, HeadersLike]"
"""A record: topic, value, key, partition, timestamp_ms, headers."""

Entry: TypeAlias = "tuple[Any, One | Many | None, Context, bool, float, int]"
"""What a thread hands over: (future, work, context, awaited, deadline, size).

``future`` is a SendFuture. ``work`` None: it is a plain Future, and done when all earlier entries
are appended. ``context``: a copy of the caller's context variables, among them a tracer's current
span. ``awaited``: the caller waits for the record's outcome, so its batch need not linger.
``deadline``: until when the record may wait for metadata and buffer space, in seconds of
``time.monotonic``. ``size``: its room in the handover."""


@dataclass(frozen=True, slots=True)
class Many:
    """A call of ``send_many``."""

    topic: str
    partition: int | None
    call: Callable[[Producer], Coroutine[Any, Any, BulkDelivery]]


def topic_of(work: One | Many | None) -> str:
    """The topic as a plain str: a subclass, such as an enum, may have another hash. Empty if it
    is no string, which the producer refuses."""
    topic = work.topic if isinstance(work, Many) else None if work is None else work[0]
    return str.__str__(topic) if isinstance(topic, str) else ""


def records_in(entries: list[Entry]) -> int:
    """How many of the entries send records."""
    return len([work for _, work, *_ in entries if work is not None])
