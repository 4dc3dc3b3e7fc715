"""What the sender needs of the cluster, as protocols that tests can implement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkaclient.cluster.view import LeaderHint
    from kafkaclient.errors import KafkaError
    from kafkaclient.net.connection import Connection
    from kafkaclient.wire.api import BrokerInfo

__all__ = ["Connections", "Leaders", "LivenessProbe"]


class LivenessProbe(Protocol):
    """The liveness probes of :class:`kafkaclient.cluster.router.Router`."""

    def knows(self, node_id: int) -> bool: ...

    async def probe(self, node_id: int) -> None: ...


class Connections(LivenessProbe, Protocol):
    """The Produce connections of :class:`kafkaclient.cluster.router.Router`."""

    def produce_connection(self, node_id: int, *, side: bool = False) -> Connection | None: ...

    def close_side(self, node_id: int) -> None: ...

    def setup_time(self, node_id: int) -> float: ...

    def connection_error(self, node_id: int) -> KafkaError | None: ...


class Leaders(Protocol):
    """The topics' leaders in :class:`kafkaclient.cluster.metadata.Metadata`."""

    def add_topic(self, name: str) -> object: ...

    def request_refresh(self, reason: str) -> None: ...

    def apply_leaders(
        self, hints: Sequence[LeaderHint], endpoints: Sequence[BrokerInfo] = ()
    ) -> None: ...
