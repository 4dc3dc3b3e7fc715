"""A request that waits for its response on one connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.errors import KafkaError

OnDone: TypeAlias = "Callable[[Any, memoryview | None, KafkaError | None], None]"
"""Called once per request, with the request, and with the payload behind the correlation id or with
the error. The payload is a view of the read buffer: decode it at once, and do not keep it."""


class PendingRequest:
    """A request that expects a response. ``sent_at``: in the clock's seconds, when the sender's
    pass began that sent the request; for other requests, when it was written. ``api`` names the
    request in messages. A subclass adds what ``on_done`` needs."""

    __slots__ = ("api", "correlation_id", "deadline", "on_done", "sent_at")

    def __init__(
        self, correlation_id: int, on_done: OnDone, sent_at: float, api: str = "PRODUCE"
    ) -> None:
        self.correlation_id: int = correlation_id
        self.on_done: OnDone = on_done
        self.sent_at: float = sent_at
        self.api: str = api
        self.deadline: float = 0.0
        """When the request times out. Assigned by :meth:`Pipeline.send`."""
