"""What tests may see of the inside of a fake cluster or a producer: :func:`inspect`."""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

from kafkaclient.testing.fake import FakeCluster

if TYPE_CHECKING:
    from kafkaclient.producer.producer import Producer
    from kafkaclient.producer.runtime import ProducerRuntime
    from kafkaclient.testing.fake.state import ClusterState

__all__ = ["inspect"]


@overload
def inspect(target: FakeCluster) -> ClusterState: ...
@overload
def inspect(target: Producer) -> ProducerRuntime: ...
def inspect(target: FakeCluster | Producer) -> ClusterState | ProducerRuntime | None:
    """The state of a fake cluster (topics, partitions and their logs, transactions, groups,
    configurations, interceptors), or the runtime of a started producer. Both may change with every
    release of this package."""
    return target._state if isinstance(target, FakeCluster) else target._core
