"""``kafkaclient produce``: records from arguments, a pipe or a file to a topic."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias

import typer

import kafkaclient
from kafkaclient.admin.places import Place
from kafkaclient.cli.connection import (
    ConnectionOptions,
    given_of,
    missing_topics,
    options_of,
    with_connection,
)
from kafkaclient.cli.output import FAILED, print_message, run_command, shown_meanwhile
from kafkaclient.cli.profile_file import pair
from kafkaclient.cli.record_format import Row, row_of_json, unescaped
from kafkaclient.cli.record_input import delimited, length_prefixed, read_records
from kafkaclient.cli.registry import Encoder, Field, Registry, registry_client
from kafkaclient.config import ProducerConfig
from kafkaclient.errors import (
    BulkDeliveryError,
    ConfigError,
    InvalidRecordError,
    KafkaError,
    PartitionOutOfRangeError,
    counted,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kafkaclient import Producer
    from kafkaclient.cli.record_input import Split
    from kafkaclient.producer.bulk.bulk_delivery import BulkDelivery

Wrong: TypeAlias = tuple[int, str]
"""The number of a record in the input, from 1, and what is wrong with it."""

_ANY = -1  # a partition, as in kcat
_UNDELIVERED = 8  # blocks on their way at most; buffer.memory bounds them, too
_WATCH_EVERY_S = 1.0  # how soon a record is looked at that waits
_STOP_S = 5.0  # how long records that were read before Ctrl-C may take, as with a dead broker
_NO_TOPIC_MS = "10000"  # how long the brokers may take to create a topic


@with_connection
def produce(  # noqa: PLR0913 - the flags of kcat and rpk
    connection: ConnectionOptions,
    *,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")],
    values: Annotated[
        list[str] | None,
        typer.Argument(metavar="VALUE", help="Values. Without: stdin, one a line."),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            *("--file", "-l"),
            exists=True,
            dir_okay=False,
            metavar="FILE",
            help="Read a file, not stdin.",
        ),
    ] = None,
    delimiter: Annotated[
        str, typer.Option("--delimiter", "-D", help="What ends a record of the input.")
    ] = "\\n",
    key: Annotated[str | None, typer.Option("--key", "-k", help="The key of all records.")] = None,
    key_delimiter: Annotated[
        str | None,
        typer.Option("--key-delimiter", "-K", help="What is between key and value in a line."),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", "-J", help="Lines are JSON objects, as `consume --json` prints them."
        ),
    ] = False,
    length_prefix: Annotated[
        bool,
        typer.Option("--length-prefixed", help="Values are behind their length in four bytes."),
    ] = False,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="May be repeated."),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option(
            "--partition",
            "-p",
            min=_ANY,
            help="The partition of all records. -1: by the key, also if lines of --json have one.",
        ),
    ] = None,
    timestamp: Annotated[
        str | None,
        typer.Option(help="Of all records: a time (2026-11-28T15:00, @MILLISECONDS), or 2h ago."),
    ] = None,
    null: Annotated[
        bool,
        typer.Option(
            "--null", "-Z", help="An empty value is null: on compacted topics it deletes."
        ),
    ] = False,
    compression: Annotated[
        str | None,
        typer.Option("--compression", "-z", help="gzip, snappy, lz4 or zstd."),
    ] = None,
    acks: Annotated[str | None, "all, 1 or 0. [default: all]"] = None,
    registry: Registry = None,
    value_schema: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="Values are JSON, and sent by this schema of the registry, or by the latest of "
            "the subject TOPIC-value: latest.",
        ),
    ] = None,
    key_schema: Annotated[
        str | None, typer.Option(metavar="ID", help="The same for keys, and TOPIC-key.")
    ] = None,
) -> None:
    """Send records to a topic. A line on stderr says how many were written.

    Exit status 1: records were not written, or the input ended early. What was written before
    stays.

    Examples:

    - `seq 1 200000 | kafkaclient produce lines`
    - `kafkaclient produce flights 'on time' -k KLM -H source=test`
    - `kafkaclient produce flights -k KLM -Z '' # a tombstone`
    - `kafkaclient consume flights -e --json | kafkaclient produce copy --json -b other:9092`
    """

    kept: list[_Sender] = []  # until the event loop is closed: see _Sender.say_outcome

    async def main() -> None:
        ends = unescaped(delimiter, "--delimiter")
        if not ends or key_delimiter == "":
            raise ConfigError("a delimiter is empty")
        given_of(
            {
                "--key-delimiter": key_delimiter,
                "--json": as_json,
                "--length-prefixed": length_prefix,
            }
        )
        given_of({"values": values or None, "--file": file})
        headers = [pair(each, "--header") for each in header or ()]
        shared = _Shared(
            topic,
            None if key is None else key.encode(),
            None if key_delimiter is None else unescaped(key_delimiter, "--key-delimiter"),
            as_json,
            tuple((name, value.encode()) for name, value in headers),
            partition,
            None if timestamp is None else _time_ms(timestamp),
            null,
        )
        own = {"compression.type": compression, "acks": acks}
        options, timeout_s, of_registry = connection.with_registry("kafkaclient-produce")
        options |= {name: value for name, value in own.items() if value is not None}
        if options.get("acks", "all") not in {"all", "-1"}:
            options.setdefault("enable.idempotence", "false")
        split = length_prefixed if length_prefix else delimited(ends)
        schemas: dict[Field, str] = {}
        if key_schema is not None:
            schemas["key"] = key_schema
        if value_schema is not None:
            schemas["value"] = value_schema
        async with AsyncExitStack() as stack:
            if schemas:
                if registry is None:
                    raise ConfigError(f"--{next(iter(schemas))}-schema needs --registry URL")
                client = await stack.enter_async_context(registry_client(registry, of_registry))
                encoders = {
                    field: await Encoder.of(client, registry, topic, field, schema)
                    for field, schema in schemas.items()
                }
                shared = shared._replace(encoders=encoders)
            kept.append(_Sender(shared))
            await _main(kept[0], options, timeout_s, values, file, split)

    run_command(main())


class _Shared(NamedTuple):
    """What is the same for all records."""

    topic: str
    key: bytes | None
    key_delimiter: bytes | None
    as_json: bool
    headers: tuple[tuple[str, bytes], ...]
    partition: int | None
    timestamp_ms: int | None
    null: bool
    encoders: dict[Field, Encoder] = {}  # noqa: RUF012 - never changed

    async def rows(
        self, records: list[bytes | None], before: int
    ) -> tuple[list[Row], Wrong | None]:
        """The records with what stands in them, up to the first that cannot be read, and what is
        wrong with that one. ``before``: how many came earlier."""
        rows = []
        for number, record in enumerate(records, before + 1):
            try:
                row = self._row(record or b"")
                rows.append(await self._encoded(row) if self.encoders else row)
            except ValueError as error:
                return rows, (number, str(error))
        return rows, None

    def _row(self, record: bytes) -> Row:
        if self.as_json:
            return row_of_json(record)
        delimiter = self.key_delimiter
        if delimiter is None:
            return Row(record)
        key, found, value = record.partition(delimiter)
        if not found:
            raise ValueError(f"no {delimiter.decode(errors='backslashreplace')!r} behind a key")
        return Row(value, key)

    async def _encoded(self, row: Row) -> Row:
        contents: dict[Field, Any] = {
            "key": self.key if row.key is None else row.key,
            "value": row.value,
        }
        if self.null:
            contents["value"] = row.value or None
        for field, encoder in self.encoders.items():
            contents[field] = await encoder.encoded(contents[field])
        return row._replace(**contents)


async def _main(
    sender: _Sender,
    options: dict[str, str],
    timeout_s: float | None,
    values: list[str] | None,
    file: Path | None,
    split: Split,
) -> None:
    config = ProducerConfig.build(options_of(ProducerConfig, options))  # before brokers are asked
    for name, similar in (await missing_topics(options, timeout_s, [sender.shared.topic])).items():
        hint = f" (there is {similar})" if similar else ""
        created = "; the brokers may create it" if config.allow_auto_create_topics else ""
        print_message("note", f"there is no topic {name}{hint}{created}")
        options.setdefault("max.block.ms", _NO_TOPIC_MS)
    watch: asyncio.Task[None] | None = None
    try:
        async with kafkaclient.Producer(options_of(ProducerConfig, options)) as producer:
            watch = asyncio.create_task(_watched(producer))
            try:
                if values:
                    await sender.send(producer, [value.encode() for value in values])
                else:
                    with _opened(file) as descriptor, sender.shown():
                        async for records in read_records(descriptor, split):
                            await sender.send(producer, records)
            except asyncio.CancelledError:  # Ctrl-C or SIGTERM
                await producer.stop(_STOP_S)
                raise
    finally:
        if watch is not None:
            watch.cancel()
        sender.say_outcome()
    if sender.failed:
        raise typer.Exit(FAILED)


async def _watched(producer: Producer) -> None:
    """Have the producer log what records wait for, also while no call awaits them: a flush that
    lasts is logged, and its end."""
    with suppress(KafkaError):  # the producer was stopped
        while True:
            await producer.flush()
            await asyncio.sleep(_WATCH_EVERY_S)


@contextmanager
def _opened(file: Path | None) -> Iterator[int]:
    if file is not None:
        with file.open("rb", buffering=0) as stream:
            yield stream.fileno()
        return
    if sys.stdin.isatty():
        typer.echo("one record a line; Ctrl-D ends", err=True)
    yield sys.stdin.fileno()


class _Sender:
    """Sends blocks of records, and counts what became of them."""

    def __init__(self, shared: _Shared) -> None:
        self.shared = shared
        self._pending: deque[BulkDelivery] = deque()
        self._read = 0
        self._written = 0
        self._error: KafkaError | None = None
        self.failed = 0

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show the counts meanwhile, unless the records are typed in."""
        if sys.stdin.isatty():
            yield
            return
        with shown_meanwhile(lambda: f"{self._read:,} records read, {self._written:,} written"):
            yield

    async def send(self, producer: Producer, records: list[bytes | None]) -> None:
        """Send all of them. Raises InvalidRecordError for the first that cannot be read or sent,
        after those before it were handed over, and KafkaError for records that could not be handed
        over."""
        shared, wrong, before = self.shared, None, self._read
        self._read += len(records)
        numbers = range(before + 1, self._read + 1)
        if shared.key_delimiter is None and not (shared.as_json or shared.encoders):
            keys = None if shared.key is None else [shared.key] * len(records)
            wrong = await self._send(producer, shared.partition, numbers, records, keys=keys)
        else:
            rows, wrong = await shared.rows(records, before)
            by_partition: dict[int | None, dict[int, Row]] = {}
            for number, row in zip(numbers, rows, strict=False):
                has_own = row.partition is not None and shared.partition != _ANY
                where = row.partition if has_own else shared.partition
                by_partition.setdefault(where, {})[number] = row
            for partition, numbered in by_partition.items():
                before_wrong = [n for n in numbered if wrong is None or n < wrong[0]]
                some = [numbered[n] for n in before_wrong]
                found = await self._send(
                    producer,
                    partition,
                    before_wrong,
                    [row.value for row in some],
                    keys=[shared.key if row.key is None else row.key for row in some],
                    record_headers=[row.headers or None for row in some],
                    timestamps_ms=[row.timestamp_ms for row in some],
                )
                wrong = found or wrong
        if wrong is not None:
            raise InvalidRecordError(f"record {wrong[0]}: {wrong[1]}. Those before it were sent")

    async def _send(
        self,
        producer: Producer,
        partition: int | None,
        numbers: Sequence[int],
        values: list[Any],
        **columns: Any,
    ) -> Wrong | None:
        """Send the records before the first that cannot be sent; returns what is wrong with it."""
        shared = self.shared
        if shared.null:
            values = [value or None for value in values]
        while len(self._pending) >= _UNDELIVERED or (self._pending and self._pending[0].done()):
            with suppress(BulkDeliveryError):
                await self._pending[0]
            self._count(self._pending.popleft())
        if self._error is not None:
            raise self._error
        try:
            delivery = await producer.send_many(
                shared.topic,
                values,
                partition=None if partition == _ANY else partition,
                timestamp_ms=shared.timestamp_ms,
                headers=shared.headers,
                **columns,
            )
        except PartitionOutOfRangeError as error:
            raise PartitionOutOfRangeError(
                f"topic {shared.topic} has no partition {partition}; with -p -1 the keys choose "
                "partitions"
            ) from error
        except InvalidRecordError as error:
            if (at := error.index) is None:
                raise
            if at:
                columns = {name: column and column[:at] for name, column in columns.items()}
                await self._send(producer, partition, numbers, values[:at], **columns)
            return numbers[at], str(error.__cause__)
        except KafkaError as error:
            if (partly := getattr(error, "delivery", None)) is not None:
                self._pending.append(partly)
            raise
        self._pending.append(delivery)
        return None

    def _count(self, delivery: BulkDelivery) -> None:
        error = delivery.exception()
        if error is None:
            self._written += delivery.result().records
        elif isinstance(error, BulkDeliveryError):
            self._written += error.delivered.records
            self.failed += error.failed
            self._error = self._error or error

    def say_outcome(self) -> None:
        """At the end, when the producer is closed: each record has its outcome, unless Ctrl-C ended
        it. The deliveries are kept, so that the producer does not log what this says."""
        waiting = 0
        for delivery in self._pending:
            if delivery.done():
                self._count(delivery)
            else:
                waiting += delivery.records
                with suppress(asyncio.InvalidStateError):
                    delivery.exception()  # it counts as seen
        what = counted(self._written, "record")
        typer.echo(f"{what} written to {self.shared.topic}", err=True)
        if waiting:
            what = counted(waiting, "record")
            print_message("warning", f"{what} may not be written: they were waiting for a broker")
        if self.failed:
            what = counted(self.failed, "record")
            print_message("error", f"{what} not written: {self._error}")


def _time_ms(text: str) -> int:
    place = Place.parse(text, "--timestamp")
    if place.time_ms is None:
        raise ConfigError(f"--timestamp {text!r}: give a time, such as 2026-11-28T15:00 or 2h")
    return place.time_ms
