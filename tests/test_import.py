"""Which modules a program loads that creates a producer, and which it loads when it needs them."""

from __future__ import annotations

import subprocess
import sys

import pytest

# What takes long to import, or belongs to other clients, and what loads it.
WITHOUT = (
    "aiokafka",
    "azure",
    "botocore",
    "importlib.metadata",
    "statistics",
    "difflib",
    "urllib.request",
    "tempfile",
    "javaproperties",
    "kafka",
    "crc32c",
    "prometheus_client",
    "opentelemetry",
    "pyarrow",
    "confluent_kafka",
    "kafkaclient.admin",
    "kafkaclient.aiokafka",
    "kafkaclient.aws",
    "kafkaclient.azure",
    "kafkaclient.cli",
    "kafkaclient.cluster.coordinator",
    "kafkaclient.net.login",
    "kafkaclient.net.tls",
    "kafkaclient.opentelemetry",
    "kafkaclient.producer.bulk",
    "kafkaclient.producer.observability.batch_telemetry",
    "kafkaclient.producer.transactions.manager",
    "kafkaclient.prometheus",
    "kafkaclient.reader",
    "kafkaclient.schema_registry",
    "kafkaclient.spark",
    "kafkaclient.streams",
    "kafkaclient.sync",
    "kafkaclient.testing",
    "kafkaclient.wire.codec",
)


def loaded(code: str) -> set[str]:
    """The modules that a new process has loaded after ``code``."""
    code += "\nimport sys\nprint(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(found.stdout.split())


def producer(options: str = "") -> set[str]:
    return loaded(f"import kafkaclient\nkafkaclient.Producer('127.0.0.1:9092'{options})")


def test_the_package_alone_loads_no_client() -> None:
    modules = loaded("import kafkaclient")
    assert "asyncio" not in modules
    assert {name for name in modules if name.startswith("kafkaclient")} == {"kafkaclient"}


def test_a_producer_loads_only_what_it_uses() -> None:
    before = loaded("pass")  # an editable installation has modules of its own
    modules = producer() - before
    assert "kafkaclient.producer.runtime" in modules  # nothing is left for the first record
    assert modules.isdisjoint(WITHOUT)


@pytest.mark.parametrize(
    ("options", "needed"),
    [
        (", transactional_id='tx'", {"kafkaclient.producer.transactions.manager", "kafka"}),
        (", key_serializer=str.encode", set()),
    ],
)
def test_an_option_loads_what_it_needs(options: str, needed: set[str]) -> None:
    """When the producer is created: importing takes long, and would hold up its event loop."""
    modules = producer(options)
    assert needed <= modules
    assert needed or "kafka" not in modules


def test_an_import_generates_little_code() -> None:
    """Dataclasses and named tuples make their methods from text, which takes most of the time of
    a small module's import."""
    made = loaded(
        "import sys\n"
        "made = []\n"
        "sys.addaudithook(lambda event, args: event == 'exec' and made.append(args[0]))\n"
        "import kafkaclient\n"
        "kafkaclient.Producer('127.0.0.1:9092')\n"
        "print(sum(code.co_filename == '<string>' for code in made))"
    )
    assert int(next(name for name in made if name.isdigit())) < 170


def test_a_reader_loads_neither_kafka_python_nor_a_producer() -> None:
    modules = loaded("import kafkaclient.reader")
    assert not modules & {"kafka", "kafkaclient.wire.codec", "kafkaclient.producer.producer"}


def test_a_spark_process_loads_only_the_client_of_its_job() -> None:
    pytest.importorskip("pyspark")
    # What Spark needs to create readers and writers, which happens in processes of their own.
    code = "import kafkaclient.spark." + ", kafkaclient.spark.".join(
        ("data_source", "source", "stream", "sink", "client_cache")
    )
    clients = {"kafkaclient.admin", "kafkaclient.producer.producer", "kafkaclient.reader", "kafka"}
    assert not loaded(code) & clients
