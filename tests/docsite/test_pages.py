"""The pages that are written from the code: complete, and each page in the navigation."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import griffe
import pytest
import yaml

from docsite import api, broker_errors, command_line, options, prometheus_metrics
from docsite.docstrings import PublicDocstrings
from docsite.pages import WRITTEN, written_pages
from docsite.tables import table
from kafkaclient.broker_errors import BROKER_ERRORS
from kafkaclient.config import ProducerConfig, ReaderConfig
from kafkaclient.config.consumer import ConsumerConfig
from kafkaclient.prometheus.page import MetricFamilies

ROOT = Path(__file__).parents[2]
IMPORT = re.compile(r"^\s*from (kafkaclient[\w.]*) import (\w+(?:, \w+)*)")
OVERRIDES = {
    "kafkaclient.DeliveryFuture.wake",
    "kafkaclient.opentelemetry.KafkaclientInstrumentor.instrumentation_dependencies",
    "kafkaclient.prometheus.ProducerMetricsCollector.on_batch",
    "kafkaclient.prometheus.ProducerMetricsCollector.on_request",
    "kafkaclient.prometheus.ProducerMetricsCollector.on_start",
    "kafkaclient.testing.clock.VirtualTimeLoop.run_in_executor",
    "kafkaclient.testing.clock.VirtualTimeLoop.shutdown_default_executor",
    "kafkaclient.testing.clock.VirtualTimeLoop.time",
}
"""Methods that Hooks, asyncio and OpenTelemetry describe, and one that is not on the site."""
NOT_JAVA = {
    "bootstrap_connect_timeout_ms",
    "partitioner",  # Java: partitioner.class
    "partitioner_share_floor",
    "compression_threads",
    "on_delivery",
    "on_error",
    "hooks",
    "telemetry",
    "telemetry_sample",
    "telemetry_file_bytes",
    "telemetry_file_ms",
    "telemetry_retention_ms",
    "ssl_key_location",
    "ssl_endpoint_hostname",
    "ssl_context",
    "sasl_username",
    "sasl_password",
    "sasl_tokenauth",
    "sasl_kerberos_domain_name",
    "sasl_kerberos_keytab",
    "sasl_kerberos_principal",
    "sasl_kerberos_ticket_cache",
    "sasl_oauth_token_provider",
    "sasl_oauthbearer_extensions",
    "https_ca_location",
    "https_ca_pem",
}
"""Options of this client that no client of Java 4.4 has under this name."""
NOT_OF_THE_CLIENT = {
    "producer": {"allow_auto_create_topics"},
    "consumer": {"metadata_max_idle_ms"},
    "admin": {
        "allow_auto_create_topics",
        "max_in_flight_requests_per_connection",
        "metadata_max_idle_ms",
    },
}
"""Options that another client of Java has, but not this one."""
ENTRIES = {entry for page in api.PAGES for entry in page.entries()}
MODULES = sorted({module for page in api.PAGES for module in page.whole})
PUBLIC = {module: set(api.public_names(module)) for module in ["kafkaclient", *MODULES]}


def test_every_public_name_of_the_package_has_an_entry() -> None:
    names = set(api.public_names("kafkaclient")) - {"__version__"}
    assert {f"kafkaclient.{name}" for name in names} <= ENTRIES


def test_no_name_has_two_entries() -> None:
    entries = [entry for page in api.PAGES for entry in page.entries()]
    assert len(entries) == len(set(entries))


@pytest.mark.parametrize("module", MODULES)
def test_every_name_in_all_is_there(module: str) -> None:
    assert api.public_names(module) == list(import_module(module).__all__)
    (page,) = [page for page in api.PAGES if module in page.whole]
    shown = {entry.rpartition(".")[2] for entry in page.entries()}
    assert shown >= set(api.public_names(module))


def test_what_examples_import_has_an_entry() -> None:
    pages = (ROOT / "docs").rglob("*.md")
    files = [*(ROOT / "examples").rglob("*.py"), *pages, ROOT / "README.md"]
    for file in files:
        for line in file.read_text("utf-8").splitlines():
            for module, names in IMPORT.findall(line):
                for name in names.split(", "):
                    named = f"{module}.{name}"
                    is_public = (
                        named in ENTRIES or name in PUBLIC.get(module, ()) or _is_module(named)
                    )
                    is_public |= named == "kafkaclient.pages.write_page"  # draws for an example
                    assert is_public, f"{file.name} imports {named}"


def _is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").exists()


def test_every_public_class_and_function_has_a_docstring() -> None:
    """Attributes are described by their class. A method that overrides one has its docstring."""
    loader = griffe.GriffeLoader(
        extensions=griffe.load_extensions(PublicDocstrings),
        search_paths=[ROOT],
        allow_inspection=False,
    )
    for package in ("kafkaclient", "pytest_kafkaclient"):
        loader.load(package)
    without = []
    producer = loader.modules_collection["kafkaclient.Producer"].all_members
    for entry in sorted(ENTRIES):
        found = loader.modules_collection[entry]
        if found.is_alias and not found.resolved:
            try:
                found.resolve_target()
            except griffe.AliasResolutionError:
                continue  # another package's, such as aiokafka's RecordMetadata
        members = found.all_members.items() if found.is_class else ()
        methods = [(name, each) for name, each in members if not name.startswith("_")]
        for name, each in [("", found), *methods]:
            if entry.endswith(".MockProducer") and name in producer:
                continue
            if (each.is_class or each.is_function) and each.docstring is None:
                without.append(f"{entry}.{name}".rstrip("."))
    assert set(without) == OVERRIDES


def test_every_option_has_its_text_names_default_and_java() -> None:
    producer, reader, consumer, admin = (page.text() for page in options.PAGES)
    for page, config in (
        (producer, ProducerConfig),
        (reader, ReaderConfig),
        (consumer, ConsumerConfig),
    ):
        for option in config.OPTIONS.values():
            entry = re.search(rf"^### `{option.name}`\n\n(.+?)(?=^##|\Z)", page, re.M | re.S)
            assert entry is not None, option.name
            text, _, facts = entry[1].partition("\n\n")
            assert text.endswith("."), option.name
            for name in (option.kafka_name, *option.aliases):
                assert f"`{name}`" in facts
            assert re.findall(r"^- (\w+):", facts, re.M)[:3] == ["Names", "Accepts", "Default"]
            assert ("- Unit:" in facts) is (
                option.name.endswith(("_ms", "_bytes", "_size", "buffer_memory"))
            ), option.name
    assert "### `default_api_timeout_ms`" in admin
    assert "### `linger_ms`" not in admin
    assert "- Java: `linger.ms`, default `5`, importance medium" in producer


def test_only_options_that_java_lacks_are_said_to_be_none_of_java() -> None:
    """The table of Java's options once had only some, and group.id was said not to be Java's."""
    for page in options.PAGES:
        entries = re.findall(r"^### `(\w+)`\n(.+?)(?=^##|\Z)", page.text(), re.M | re.S)
        said = {name for name, entry in entries if "- Java: no option of this name" in entry}
        ours = NOT_JAVA | NOT_OF_THE_CLIENT[page.java_client]
        assert said <= ours, page.file


def test_every_broker_error_has_its_row() -> None:
    rows = re.findall(r"^\| (-?\d+) \| `(\w+)` \|", broker_errors.page(), re.MULTILINE)
    assert {int(code): name for code, name in rows} == {c: e[0] for c, e in BROKER_ERRORS.items()}


def test_the_row_of_an_error() -> None:
    assert (
        "| 45 | `OUT_OF_ORDER_SEQUENCE_NUMBER` | "
        "[`SequenceError`](api/errors.md#kafkaclient.errors.SequenceError) | no | "
        "sent again, with a new epoch | no |" in broker_errors.page()
    )


def test_the_row_of_a_metric() -> None:
    assert (
        "| `kafkaclient_producer_broker_excluded` | gauge | broker, reason | "
        "1: records without key do not go to the broker, for this reason |  |"
        in prometheus_metrics.page()
    )
    assert "`kafkaclient_producer_records_sent_total` | counter" in prometheus_metrics.page()


def test_every_metric_of_every_collector_has_a_row() -> None:
    page = prometheus_metrics.page()
    kinds = MetricFamilies.__subclasses__()
    assert len(kinds) == 3
    for family in (family for kind in kinds for family in kind().all()):  # type: ignore[call-arg]
        suffix = "_total" if family.type == "counter" else ""
        assert f"| `{family.name}{suffix}` | {family.type} |" in page


def test_every_command_has_its_section() -> None:
    page = command_line.page()
    assert "\n## `kafkaclient perf-test`\n" in page
    assert "\n### `kafkaclient topics create`\n" in page
    assert re.search(r"^\| `TOPIC <?\w+>?` \| The topic\. ", page, re.MULTILINE)


def test_a_table_escapes_what_would_end_a_cell() -> None:
    assert table(("a",), [["x|y\nz"]]) == "| a |\n| --- |\n| x\\|y z |\n"


def test_every_page_is_in_the_navigation() -> None:
    text = (ROOT / "mkdocs.yml").read_text("utf-8")
    listed = re.findall(r"^ +- (?:[^:\n]+: )?([\w/-]+\.md)$", text.partition("\nnav:")[2], re.M)
    pages = [str(p.relative_to(ROOT / "docs")) for p in (ROOT / "docs").rglob("*.md")]
    assert sorted(listed) == sorted([*pages, *WRITTEN])


def test_written_pages_are_the_listed_ones() -> None:
    assert sorted(written_pages()) == sorted(WRITTEN)


def test_the_site_loads_nothing_from_elsewhere() -> None:
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
    assert settings["theme"]["font"] is False
    assert not [url for url in settings["extra_css"] if ":" in url]
    assert "extra_javascript" not in settings
