"""A message is read back as it was written; what is not telemetry, or is newer, is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from kafkaclient.errors import ConfigError
from kafkaclient.telemetry import decode
from kafkaclient.telemetry.format import (
    EXCLUSIONS_KEY,
    SAMPLE_KEY,
    SCHEMA_VERSION,
    STARTED_KEY,
    VERSION_KEY,
    BatchColumns,
    as_message,
)
from tests.telemetry.support import batch

if TYPE_CHECKING:
    from kafkaclient.hooks import FinishedBatch

FACTS = {STARTED_KEY: "2026-01-02T03:04:05+00:00", VERSION_KEY: str(SCHEMA_VERSION)}


def table(batches: list[FinishedBatch], metadata: dict[str, str]) -> pa.Table:
    columns = BatchColumns("me", 100.0, acks=True)
    columns.append(batches)
    return columns.table(metadata)


def test_a_message_is_read_back_with_its_metadata() -> None:
    batches = [batch(partition=number, topic=f"t{number % 3}") for number in range(1000)]
    written = table(batches, FACTS)
    read = decode(as_message(written))
    assert read.equals(written, check_metadata=True)
    assert read["partition"].to_pylist() == list(range(1000))
    assert len(as_message(written)) < 60 * len(batches)


@pytest.mark.parametrize(
    "value", [None, "x", 7, b"", b"{}", b"\xff\xff\xff\xff\x10\0\0\0", b"x" * 1000]
)
def test_something_else_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match="a message is not telemetry"):
        decode(value)


def test_a_message_that_was_cut_is_refused() -> None:
    value = as_message(table([batch()] * 100, FACTS))
    for length in range(8, len(value) - 8, 101):  # without its end mark it is whole
        with pytest.raises(ConfigError, match="a message is not telemetry"):
            decode(value[:length])


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({}, "a message is not telemetry: its metadata has no kafkaclient.started"),
        ({STARTED_KEY: FACTS[STARTED_KEY]}, "metadata has no kafkaclient.telemetry.schema"),
        (FACTS | {VERSION_KEY: "2"}, "version 2 .* reads version 1: upgrade kafkaclient"),
        (FACTS | {VERSION_KEY: "new"}, "version new .* upgrade kafkaclient"),
        (FACTS | {VERSION_KEY: "1" * 5000}, "version 1{20} of .* upgrade kafkaclient"),
        (FACTS | {STARTED_KEY: "yesterday"}, "a wrong kafkaclient.started"),
        (FACTS | {STARTED_KEY: "2026-01-02T03:04:05"}, "a wrong kafkaclient.started"),
        *(
            (FACTS | {SAMPLE_KEY: share}, "a wrong kafkaclient.telemetry.sample")
            for share in ("0", "-1", "2", "nan", "zero")
        ),
        *(
            (FACTS | {EXCLUSIONS_KEY: text}, "a wrong kafkaclient.exclusions")
            for text in (
                '{"x":1',
                "7",
                '{"x":1}',
                '[{"broker":1,"reason":2,"times":3}]',
                '[{"broker":1,"reason":"slow","times":"many"}]',
                '[{"broker":99999999999,"reason":"slow","times":1}]',
                "[" * 100_000,
            )
        ),
    ],
)
def test_other_metadata_is_refused(metadata: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        decode(as_message(table([batch()], metadata)))


def test_other_columns_are_refused() -> None:
    whole = table([batch()], FACTS)
    broker = whole.column_names.index("broker")
    for other in (
        whole.select(["topic", "broker"]),
        whole.drop_columns(["done_s"]),
        whole.set_column(broker, "broker", pa.array(["x"])),
        whole.set_column(broker, "broker", pa.nulls(1, pa.int32())),
        whole.append_column("broker", whole["broker"]),
    ):
        with pytest.raises(
            ConfigError, match=r"a message is not telemetry: .* (broker|client_id|done_s) "
        ):
            decode(as_message(other))
