"""Finds connections that lead to the wrong broker of the right cluster.

Brokers swap addresses, a name lags behind, or a proxy leads to any broker. From Kafka 4.4 on the
handshake finds that (KIP-1242). An older broker answers NOT_LEADER_OR_FOLLOWER to every batch, and
metadata goes on naming the broker that was meant. Such a connection is made again, so that the name
is looked up again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kafkaclient.cluster.identity import WrongBrokerError
from kafkaclient.log_fields import log_fields

if TYPE_CHECKING:
    from kafkaclient.cluster.metadata import Metadata
    from kafkaclient.cluster.router import Router

_log = logging.getLogger(__name__)

_SUSPECTED_AFTER_S = 2.0
"""Metadata may know a new leader that long before this broker knows that it leads."""
_FORGOTTEN_AFTER_S = 30.0
"""A batch is sent again sooner than that: an older refusal belongs to an earlier time as leader."""


class Misrouting:
    """By broker, how long it has refused to lead what metadata says it leads."""

    def __init__(self, metadata: Metadata, router: Router) -> None:
        self.suspects: dict[int, tuple[float, float]] = {}
        """Broker -> the times of the first and of the latest refusal since its last success, or
        since its connection was made again."""
        self._reasons: dict[int, str] = {}
        """Broker -> why its connection was made again, until it has a success."""
        self._metadata = metadata
        self._router = router

    def refused(self, node_id: int, now: float) -> None:
        """The broker has answered NOT_LEADER_OR_FOLLOWER for a partition that it leads by the
        latest metadata."""
        since, latest = self.suspects.get(node_id, (now, now))
        if now - latest > _FORGOTTEN_AFTER_S:
            since = now
            self._reasons.pop(node_id, None)
        self.suspects[node_id] = since, now
        if now - since < _SUSPECTED_AFTER_S or self._metadata.refreshed_at <= since:
            return
        self.suspects[node_id] = now, now
        reason = (
            f"broker {node_id} refuses to lead partitions that it leads by the cluster's metadata: "
            "its address may lead to another broker (look at DNS, proxies and "
            "advertised.listeners); the connection is made again"
        )
        error = WrongBrokerError(reason)
        if node_id not in self._reasons:
            text = "a connection may lead to the wrong broker: %s"
            _log.warning(text, error, extra=log_fields(error, broker=node_id))
        self._reasons[node_id] = reason
        self._router.reconnect(node_id, error)

    def succeeded(self, node_id: int) -> None:
        """The broker has written a batch."""
        if self.suspects.pop(node_id, None) is not None:
            self._reasons.pop(node_id, None)

    def reasons(self, now: float) -> dict[int, str]:
        """Why brokers are not reached at present, whatever answers at their addresses. Without
        batches to send nothing refuses any more, and nothing is known."""
        return {
            node_id: reason
            for node_id, reason in self._reasons.items()
            if now - self.suspects[node_id][1] <= _FORGOTTEN_AFTER_S
        }

    def leave_cluster(self) -> None:
        """The client is in another cluster."""
        self.suspects.clear()
        self._reasons.clear()
