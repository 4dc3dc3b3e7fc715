"""The pages of the API: which public names are on which page. mkdocstrings writes the entries."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path(__file__).parents[1]


def public_names(module: str) -> list[str]:
    """The names in ``__all__`` of a module, without importing the module."""
    path = _ROOT.joinpath(*module.split("."))
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    for node in ast.parse(source.read_text("utf-8")).body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                return [str(name) for name in ast.literal_eval(value)]
    raise ValueError(f"{module} has no __all__")


@dataclass(frozen=True)
class ApiPage:
    """``whole`` are modules of which all public names are on the page; ``names`` are single ones,
    which come first."""

    name: str
    title: str
    intro: str
    names: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    """Options of mkdocstrings that differ on this page, as lines of YAML."""

    @property
    def path(self) -> str:
        return f"reference/api/{self.name}.md"

    def entries(self) -> list[str]:
        """The public names on this page, each with the first module that users import it from."""
        found = {name.rpartition(".")[2]: name for name in self.names}
        for module in self.whole:
            for name in public_names(module):
                found.setdefault(name, f"{module}.{name}")
        return list(found.values())

    def text(self) -> str:
        lines = [f"      {line}" for line in self.options]
        options = "\n".join(["    options:", *lines]) if lines else ""
        entries = "\n".join(f"::: {name}\n{options}\n" for name in self.entries())
        return f"# {self.title}\n\n{self.intro}\n\n{entries}"


def _top(*names: str) -> tuple[str, ...]:
    return tuple(f"kafkaclient.{name}" for name in names)


PAGES = (
    ApiPage(
        "producer",
        "Producer",
        "Send records from an event loop. [Producer options](../producer-options.md) lists the "
        "options, [Errors](../errors.md) the errors.",
        _top("Producer", "Delivery", "DeliveryFuture", "BulkDelivery", "RecordBatchBuilder"),
    ),
    ApiPage(
        "sync",
        "SyncProducer, SyncConsumer",
        "Send and consume in threads, without an event loop ([how to](../../how-to/sync.md)).",
        _top("SyncProducer", "SendFuture", "SyncConsumer"),
    ),
    ApiPage(
        "values",
        "Values",
        "What calls take and return.",
        _top(
            "RecordMetadata",
            "BulkMetadata",
            "TopicPartition",
            "TopicListing",
            "OffsetAndMetadata",
            "OffsetRange",
            "ConsumerGroupMetadata",
            "PreparedTransaction",
            "ClusterView",
            "Health",
            "MetricsSnapshot",
        ),
        ("kafkaclient.types",),
    ),
    ApiPage(
        "extending",
        "Your own parts",
        "Partitioners, serializers, hooks and token providers: what the producer calls in your "
        "code, and what it gives to your code.",
        _top(
            "Partitioner",
            "LoadView",
            "LoadSnapshot",
            "BrokerLoad",
            "PartitionLoad",
            "Serializer",
            "SerializationContext",
            "KafkaMetric",
            "Hooks",
            "FinishedBatch",
            "ConsumedBatch",
            "FinishedCommit",
            "FinishedRequest",
            "UnseenFailure",
            "Token",
            "TokenProvider",
        ),
    ),
    ApiPage(
        "errors",
        "Exceptions",
        "All exceptions are in `kafkaclient.errors`. [Errors](../errors.md) says what to do about "
        "each; [Broker errors](../broker-errors.md) has Kafka's error codes.",
        _top("KafkaError"),
        ("kafkaclient.errors",),
        options=("show_bases: true", "inherited_members: false"),
    ),
    ApiPage(
        "config",
        "Configuration objects",
        "A client's checked options (`producer.config`). Each option is an attribute; "
        "[Producer options](../producer-options.md) and [Reader options](../reader-options.md) "
        "describe them.",
        ("kafkaclient.ProducerConfig",),
        ("kafkaclient.config",),
        ("members: [build]",),
    ),
    ApiPage(
        "consumer",
        "Consumer",
        "Consume topics as a member of a group ([how to](../../how-to/consume.md)).",
        (
            *_top("Consumer", "DeadLetters", "Deserializer"),
            "kafkaclient.consumer.Record",
            "kafkaclient.consumer.RebalanceListener",
        ),
    ),
    ApiPage(
        "reader",
        "Reader",
        "Read records without a consumer group ([how to](../../how-to/reader.md)).",
        whole=("kafkaclient.reader",),
    ),
    ApiPage(
        "admin",
        "Admin",
        "Topics, configurations, partition limits and reassignments "
        "([how to](../../how-to/admin.md)).",
        ("kafkaclient.admin.Admin", "kafkaclient.admin.Reassigner"),
        ("kafkaclient.admin",),
    ),
    ApiPage(
        "streams",
        "Streams",
        "Stream processing with state ([how to](../../how-to/streams.md)).",
        ("kafkaclient.streams.StreamsApp", "kafkaclient.streams.StreamsConfig"),
        ("kafkaclient.streams",),
    ),
    ApiPage(
        "aiokafka",
        "Drop-in for aiokafka",
        "`AIOKafkaProducer` with this package's producer ([how to](../../how-to/aiokafka.md)).",
        whole=("kafkaclient.aiokafka",),
    ),
    ApiPage(
        "spark",
        "Spark",
        "The data source for PySpark ([how to](../../how-to/spark.md)).",
        whole=("kafkaclient.spark",),
    ),
    ApiPage(
        "schema-registry",
        "Schema registry",
        "Avro, JSON Schema and Protobuf ([how to](../../how-to/serializers.md)).",
        whole=("kafkaclient.schema_registry",),
    ),
    ApiPage(
        "clouds",
        "Logins of clouds",
        "Token providers ([how to](../../how-to/clouds.md)).",
        whole=("kafkaclient.aws", "kafkaclient.azure"),
    ),
    ApiPage(
        "observability",
        "Prometheus, OpenTelemetry, telemetry",
        "See [Prometheus](../../how-to/prometheus.md), "
        "[OpenTelemetry](../../how-to/opentelemetry.md) and "
        "[telemetry files](../../how-to/telemetry.md).",
        whole=("kafkaclient.prometheus", "kafkaclient.opentelemetry", "kafkaclient.telemetry"),
    ),
    ApiPage(
        "testing",
        "Testing",
        "Brokers, faults and a cluster in memory for tests ([how to](../../how-to/testing.md)).",
        ("kafkaclient.wire.api.ApiKey",),
        (
            "kafkaclient.testing",
            "kafkaclient.testing.fake",
            "kafkaclient.testing.mock",
            "kafkaclient.testing.proxy",
            "kafkaclient.testing.cluster",
            "kafkaclient.testing.security",
            "kafkaclient.testing.clock",
            "kafkaclient.testing.errors",
            "kafkaclient.testing.inspect",
            "pytest_kafkaclient",
        ),
    ),
)
