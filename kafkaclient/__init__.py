"""An asyncio Kafka producer that chooses partitions by live load.

Everything public is named here; parts are imported when they are first used, so that
``import kafkaclient`` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkaclient.cluster.view import ClusterView
    from kafkaclient.config import ProducerConfig
    from kafkaclient.errors import KafkaError
    from kafkaclient.net.sasl.tokens import Token, TokenProvider
    from kafkaclient.producer.batches.delivery import Delivery
    from kafkaclient.producer.bulk.bulk_delivery import BulkDelivery
    from kafkaclient.producer.observability.unobserved_failures import UnseenFailure
    from kafkaclient.producer.partitioning.load_view import (
        BrokerLoad,
        LoadSnapshot,
        LoadView,
        PartitionLoad,
    )
    from kafkaclient.producer.partitioning.partitioners import Partitioner
    from kafkaclient.producer.producer import Producer
    from kafkaclient.types import (
        BulkMetadata,
        ConsumerGroupMetadata,
        OffsetAndMetadata,
        OffsetRange,
        PreparedTransaction,
        RecordMetadata,
        TopicPartition,
    )

__all__ = [
    "BrokerLoad",
    "BulkDelivery",
    "BulkMetadata",
    "ClusterView",
    "ConsumerGroupMetadata",
    "Delivery",
    "KafkaError",
    "LoadSnapshot",
    "LoadView",
    "OffsetAndMetadata",
    "OffsetRange",
    "PartitionLoad",
    "Partitioner",
    "PreparedTransaction",
    "Producer",
    "ProducerConfig",
    "RecordMetadata",
    "Token",
    "TokenProvider",
    "TopicPartition",
    "UnseenFailure",
    "__version__",
]

__version__ = "0.1.0"

_HOMES = {
    "BrokerLoad": "producer.partitioning.load_view",
    "BulkDelivery": "producer.bulk.bulk_delivery",
    "BulkMetadata": "types",
    "ClusterView": "cluster.view",
    "ConsumerGroupMetadata": "types",
    "Delivery": "producer.batches.delivery",
    "KafkaError": "errors",
    "LoadSnapshot": "producer.partitioning.load_view",
    "LoadView": "producer.partitioning.load_view",
    "OffsetAndMetadata": "types",
    "OffsetRange": "types",
    "PartitionLoad": "producer.partitioning.load_view",
    "Partitioner": "producer.partitioning.partitioners",
    "PreparedTransaction": "types",
    "Producer": "producer.producer",
    "ProducerConfig": "config",
    "RecordMetadata": "types",
    "Token": "net.sasl.tokens",
    "TokenProvider": "net.sasl.tokens",
    "TopicPartition": "types",
    "UnseenFailure": "producer.observability.unobserved_failures",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
