"""An asyncio Kafka producer that chooses partitions by live load.

The public names are here. Their modules are imported when a name is first used, so that
``import kafkaclient`` is fast.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # typing takes longer to import than all the rest
if TYPE_CHECKING:
    from kafkaclient.cluster.health import Health
    from kafkaclient.cluster.view import ClusterView
    from kafkaclient.config import ProducerConfig
    from kafkaclient.consumer.consumer import Consumer
    from kafkaclient.consumer.deserializers import Deserializer
    from kafkaclient.dead_letters import DeadLetters
    from kafkaclient.errors import KafkaError
    from kafkaclient.hooks import (
        ConsumedBatch,
        FinishedBatch,
        FinishedCommit,
        FinishedRequest,
        Hooks,
    )
    from kafkaclient.metrics.snapshot import MetricsSnapshot
    from kafkaclient.metrics_push.points import KafkaMetric
    from kafkaclient.net.tokens import Token, TokenProvider
    from kafkaclient.producer.batches.delivery import Delivery
    from kafkaclient.producer.batches.delivery_future import DeliveryFuture
    from kafkaclient.producer.batches.serializers import SerializationContext, Serializer
    from kafkaclient.producer.bulk.batch_builder import RecordBatchBuilder
    from kafkaclient.producer.bulk.bulk_delivery import BulkDelivery
    from kafkaclient.producer.observability.reports import UnseenFailure
    from kafkaclient.producer.partitioning.partitioners import (
        BrokerLoad,
        LoadSnapshot,
        LoadView,
        Partitioner,
        PartitionLoad,
    )
    from kafkaclient.producer.producer import Producer
    from kafkaclient.sync.consumer import SyncConsumer
    from kafkaclient.sync.futures import SendFuture
    from kafkaclient.sync.producer import SyncProducer
    from kafkaclient.types import (
        BulkMetadata,
        ConsumerGroupMetadata,
        OffsetAndMetadata,
        OffsetRange,
        PreparedTransaction,
        RecordMetadata,
        TopicListing,
        TopicPartition,
    )


__all__ = [
    "BrokerLoad",
    "BulkDelivery",
    "BulkMetadata",
    "ClusterView",
    "ConsumedBatch",
    "Consumer",
    "ConsumerGroupMetadata",
    "DeadLetters",
    "Delivery",
    "DeliveryFuture",
    "Deserializer",
    "FinishedBatch",
    "FinishedCommit",
    "FinishedRequest",
    "Health",
    "Hooks",
    "KafkaError",
    "KafkaMetric",
    "LoadSnapshot",
    "LoadView",
    "MetricsSnapshot",
    "OffsetAndMetadata",
    "OffsetRange",
    "PartitionLoad",
    "Partitioner",
    "PreparedTransaction",
    "Producer",
    "ProducerConfig",
    "RecordBatchBuilder",
    "RecordMetadata",
    "SendFuture",
    "SerializationContext",
    "Serializer",
    "SyncConsumer",
    "SyncProducer",
    "Token",
    "TokenProvider",
    "TopicListing",
    "TopicPartition",
    "UnseenFailure",
    "__version__",
]

__version__ = "0.1.0"

_HOMES = {
    "cluster.health": ("Health",),
    "cluster.view": ("ClusterView",),
    "config": ("ProducerConfig",),
    "consumer.consumer": ("Consumer",),
    "consumer.deserializers": ("Deserializer",),
    "dead_letters": ("DeadLetters",),
    "errors": ("KafkaError",),
    "hooks": ("ConsumedBatch", "FinishedBatch", "FinishedCommit", "FinishedRequest", "Hooks"),
    "metrics.snapshot": ("MetricsSnapshot",),
    "metrics_push.points": ("KafkaMetric",),
    "net.tokens": ("Token", "TokenProvider"),
    "producer.batches.delivery": ("Delivery",),
    "producer.batches.delivery_future": ("DeliveryFuture",),
    "producer.batches.serializers": ("SerializationContext", "Serializer"),
    "producer.bulk.batch_builder": ("RecordBatchBuilder",),
    "producer.bulk.bulk_delivery": ("BulkDelivery",),
    "producer.observability.reports": ("UnseenFailure",),
    "producer.partitioning.partitioners": (
        "BrokerLoad",
        "LoadSnapshot",
        "LoadView",
        "PartitionLoad",
        "Partitioner",
    ),
    "producer.producer": ("Producer",),
    "sync.consumer": ("SyncConsumer",),
    "sync.futures": ("SendFuture",),
    "sync.producer": ("SyncProducer",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOME_OF.get(name, "types")
    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
