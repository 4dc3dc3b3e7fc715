"""``kafkaclient consume``: records of topics to a terminal, a pipe or a file."""

from __future__ import annotations

import re
import sys
from contextlib import AsyncExitStack, nullcontext
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kafkaclient.admin.places import HELP, Place
from kafkaclient.broker_errors import ErrorCode, broker_error
from kafkaclient.cli.connection import (
    ConnectionOptions,
    given_of,
    missing_topics,
    options_of,
    output_file,
    with_connection,
)
from kafkaclient.cli.output import (
    FAILED,
    joined,
    print_message,
    run_command,
    shown_meanwhile,
)
from kafkaclient.cli.record_format import (
    unescaped,
    written_as,
    written_as_json,
    written_as_lines,
    written_with_keys,
)
from kafkaclient.cli.record_output import COLUMNS, output_to
from kafkaclient.cli.record_reading import Plan, Printer, consume_as_member, read
from kafkaclient.cli.registry import Decoder, Registry, registry_client
from kafkaclient.config import ReaderConfig
from kafkaclient.config.consumer import ConsumerConfig
from kafkaclient.errors import ConfigError, counted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkaclient.cli.record_format import Printed, Write
    from kafkaclient.errors import KafkaError
    from kafkaclient.types import TopicPartition

_FILTER = re.compile(r"(key|value|header\.(?P<name>[^=~]+))(?P<how>[=~])(?P<what>.*)", re.DOTALL)


@with_connection
def consume(  # noqa: PLR0913 - the flags of kcat and rpk
    connection: ConnectionOptions,
    *,
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC", help="The topics.")],
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            "-o",
            metavar="PLACE",
            help=f"Where to begin: {HELP}. [default: earliest; with --group what it has committed]",
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(metavar="PLACE", help="Where to end, likewise. [default: never]"),
    ] = None,
    exit_: Annotated[bool, typer.Option("--exit", "-e", help="The same as --until end.")] = False,
    count: Annotated[
        int | None, typer.Option("--count", "-n", "-c", min=1, help="End after N records.")
    ] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", min=0, help="Only this one; may be repeated."),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            "-G",
            help="Be a member of this consumer group, and commit what was printed.",
        ),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            "--filter",
            metavar="FIELD=TEXT",
            help="Only records whose key, value or header.NAME is the text, or with ~ matches the "
            "regular expression; may be repeated.",
        ),
    ] = None,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            "-f",
            help="What to print of each record: %t topic, %p partition, %o offset, %T timestamp, "
            "%k key, %s value, %h headers, %K and %S lengths, %R length of the value in 4 bytes.",
        ),
    ] = None,
    key_delimiter: Annotated[
        str | None,
        typer.Option("--key-delimiter", "-K", help="Print the key and this before each value."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", "-J", help="Print a JSON object for each record.")
    ] = False,
    registry: Registry = None,
    skip_message_on_error: Annotated[
        bool, "Leave out records that cannot be decoded, and count them at the end."
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            callback=output_file,
            metavar="FILE",
            help="Write to a file; .parquet, .arrow and .csv get columns.",
        ),
    ] = None,
) -> None:
    """Print the records of topics, those to come as well.

    Exit status 1: it ended early. A line on stderr says how many records were printed.

    Examples:

    - `kafkaclient consume flights -e # the values of all records`
    - `kafkaclient consume flights -o -10 -f '%p:%o %k=%s\\n' -e # the last ten of each partition`
    - `kafkaclient consume flights -o 2h --filter key=KLM --json # since two hours ago, and to come`
    - `kafkaclient consume flights -g night --out flights.parquet -e`
    - `kafkaclient consume flights -e --registry http://localhost:8081 # Avro as JSON`
    """

    async def main() -> None:
        given = given_of({"--format": format_, "--key-delimiter": key_delimiter, "--json": as_json})
        given_of({"--until": until, "--exit": exit_})
        columns = out is not None and out.suffix in COLUMNS
        if columns and given:
            raise ConfigError(f"{given[0]} has no use for the columns of {out}")
        wants_headers = "%h" in (format_ or "") or any("header." in each for each in where or ())
        plan = Plan(
            topics=topics,
            partitions=frozenset(partition or ()),
            start=Place.parse(from_ or "earliest", "--from"),
            until=_end("end" if exit_ else until),
            most=count,
            filters=[_filter(each) for each in where or ()],
            headers=columns or as_json or wants_headers,
            skip_errors=skip_message_on_error,
        )
        if format_ is not None:
            form = written_as(format_)
        elif key_delimiter is not None:
            form = written_with_keys(unescaped(key_delimiter, "--key-delimiter"))
        else:
            form = written_as_json if as_json else written_as_lines
        member = {} if group is None else _group_options(plan, group)
        options, timeout_s, of_registry = connection.with_registry("kafkaclient-consume")
        if timeout_s is not None and not {"max.block.ms", "default.api.timeout.ms"} & {*options}:
            options["max.block.ms"] = f"{timeout_s * 1000:.0f}"
        config = ConsumerConfig if member else ReaderConfig
        config.build(options_of(config, options) | member)  # before anything is asked of brokers
        async with AsyncExitStack() as stack:
            if registry is not None:
                client = await stack.enter_async_context(registry_client(registry, of_registry))
                plan = plan._replace(decoder=Decoder(client, registry))
            await _check_topics(options, timeout_s, topics)
            await _main(options, member, plan, out, form)

    run_command(main())


def _end(text: str | None) -> Place | None:
    place = None if text is None else Place.parse(text, "--until")
    if place is not None and ((place.offset or 0) < 0 or place.word == "earliest"):
        raise ConfigError(f"--until {text}: give end, an offset or a time")
    return place


def _group_options(plan: Plan, group: str) -> dict[str, str]:
    start = plan.start.word
    if start is None or (plan.until is not None and plan.until.word is None):
        raise ConfigError(
            "with --group, --from is earliest or latest, for partitions of which the group has "
            "committed nothing, and --until is end; `kafkaclient groups reset-offsets` moves a "
            "group"
        )
    if plan.partitions:
        raise ConfigError("--partition and --group: the group says who has which partition")
    return {"group.id": group, "auto.offset.reset": start}


async def _check_topics(
    options: Mapping[str, str], timeout_s: float | None, topics: list[str]
) -> None:
    for topic, similar in (await missing_topics(options, timeout_s, topics)).items():
        hint = f"; did you mean {similar}?" if similar else ""
        raise broker_error(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"topic {topic}",
            advice=f"there is no such topic{hint}",
        )


async def _main(
    options: Mapping[str, str],
    member: dict[str, str],
    plan: Plan,
    out: Path | None,
    form: Write,
) -> None:
    """``member``: the options of a member of a group; empty without a group."""
    printer = Printer(plan)
    is_seen = out is None and sys.stdout.isatty()  # the records show the progress
    counts = shown_meanwhile(lambda: f"{printer.total:,} records")
    try:
        async with output_to(out, form) as printer.output:
            with nullcontext() if is_seen else counts:
                if member:
                    own = options_of(ConsumerConfig, options) | member
                    failed = await consume_as_member(plan, own, printer)
                else:
                    failed = await read(plan, options_of(ReaderConfig, options), printer)
    finally:
        where = "" if out is None else f", in {out}"
        what = counted(printer.total, "record")
        if not isinstance(sys.exception(), BrokenPipeError):  # what its reader has got is not known
            typer.echo(f"{what} of {joined(plan.topics)}{where}", err=True)
        if printer.skipped:
            left_out = counted(printer.skipped, "record")
            print_message("note", f"{left_out} left out; the first: {printer.first_skipped}")
    _say_failed(failed)


def _say_failed(failed: Mapping[TopicPartition, KafkaError]) -> None:
    """Say which partitions have not been read to their ends; exit with 1 if there are any."""
    by_reason: dict[str, list[TopicPartition]] = {}
    for where, error in sorted(failed.items(), key=itemgetter(0)):
        by_reason.setdefault(str(error).removeprefix(f"{where}: "), []).append(where)
    for reason, partitions in by_reason.items():
        print_message("error", f"{joined(partitions)}: not read to the end: {reason}")
    if failed:
        raise typer.Exit(FAILED)


def _filter(text: str) -> Callable[[Printed], bool]:
    found = _FILTER.fullmatch(text)
    if found is None:
        raise ConfigError(
            f"--filter {text!r}: give key=TEXT, value=TEXT or header.NAME=TEXT, or with ~ a "
            "regular expression"
        )
    what = found["what"].encode()
    if found["how"] == "=":
        matches: Callable[[bytes], object] = what.__eq__
    else:
        try:
            matches = re.compile(what).search
        except re.error as error:
            raise ConfigError(f"--filter {text!r}: {error}") from error
    field, header = found[1], found["name"]

    def is_match(record: Printed) -> bool:
        contents = [getattr(record, field)] if header is None else _headers(record, header)
        return any(content is not None and bool(matches(content)) for content in contents)

    return is_match


def _headers(record: Printed, header: str) -> list[bytes | None]:
    return [content for name, content in record.headers if name == header]
