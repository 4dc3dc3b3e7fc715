"""Prints moves of replicas and their throttles as tables, lines, bars and JSON."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from kafkaclient.admin.reassign.estimate import shown
from kafkaclient.admin.reassign.outcome import RATE_KEYS, some
from kafkaclient.cli.output import (
    joined,
    picked,
    plain_table,
    print_json,
    print_message,
    print_table,
    stderr_console,
)
from kafkaclient.errors import ReassignmentError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from rich.console import Console

    from kafkaclient.admin import Estimate, Lifted, Progress, Throttles
    from kafkaclient.errors import KafkaError
    from kafkaclient.types import TopicPartition
    from kafkaclient.wire.admin import OngoingReassignment

_ROWS = 20  # partitions shown while they move: a screen has no room for more
LINE_EVERY_S = 10.0


def estimate_json(found: Estimate, quota: int | None, network: int | None) -> dict[str, Any]:
    safe = found.safe_range(network)
    numbers = ("partitions", "total_partitions", "move_ratio", "bytes_to_move", "inbound")
    return picked(found, *numbers, "written", "waiting", "leader_changes") | {
        "skipped": list(map(str, found.skipped)),
        "bytes_in": dict(sorted(found.bytes_in.items())),
        "bytes_out": dict(sorted(found.bytes_out.items())),
        "silent": dict(sorted(found.silent.items())),
        "quota": quota,
        "safe_range": {"above": safe.below, "below": safe.above},
        "move_time_s": None if quota is None else found.move_time_s(quota),
        "expected_s": None if quota is None else found.expected_s(quota),
    }


def print_estimate(found: Estimate, quota: int | None, network: int | None) -> None:
    safe = found.safe_range(network)
    upper = "" if safe.above is None else f" and below {shown(safe.above)}/s"
    between = "none" if safe.is_empty else f"above {shown(safe.below)}/s{upper}"
    rows = [
        ("partitions that get new replicas", f"{found.partitions:,} of {found.total_partitions:,}"),
        ("leaders that change", f"{found.leader_changes:,}"),
        ("MoveRatio", f"{found.move_ratio:.3f}"),
        ("bytes to move", shown(found.bytes_to_move)),
        ("inbound bytes of a broker (IN)", f"{shown(found.inbound)}/s"),
        ("written to moving partitions (W)", f"{shown(found.written)}/s"),
        ("safe quota (W < T < N - IN/R)", between),
    ]
    if quota is not None:
        rows += [
            ("quota (T)", f"{shown(quota)}/s"),
            ("MoveTime by KIP-73", _time(found.move_time_s(quota))),
            ("expected, by the busiest broker", _time(found.expected_s(quota))),
        ]
    print_table(("", "value"), rows, right=("value",))
    for node, why in sorted(found.silent.items()):
        print_message("warning", f"the estimate does not include broker {node}: {why}")
    for topic in found.waiting:
        print_message(
            "warning",
            f"topic {topic} accepts no records with acks=all while it moves: min.insync.replicas "
            "is more than its replicas, and the new replicas count as soon as the move begins. "
            f"Lower it until the move is over (kafkaclient configs alter {topic} "
            "--add-config min.insync.replicas=1)",
        )
    if found.skipped:
        print_message(
            "warning", f"{some(found.skipped)}: left out, because a target broker is down"
        )
    if quota is not None and found.is_coarse(quota, network):
        print_message(
            "note",
            "the first fetches (replica.fetch.response.max.bytes from each broker) take longer "
            "than the period over which brokers measure the quota, so that they exceed it",
        )


def _time(seconds: float | None) -> str:
    return "never ends" if seconds is None else duration(seconds)


def duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes}:{rest:02}"


def print_ongoing(moves: Mapping[TopicPartition, OngoingReassignment]) -> None:
    """Print the moves in the words of Kafka's tool."""
    if not moves:
        typer.echo("No partition reassignments found.")
        return
    typer.echo("Current partition reassignments:")
    for partition, move in sorted(moves.items()):
        words = f"{partition}: replicas: {joined(move.replicas)}."
        words += f" adding: {joined(move.adding)}." * bool(move.adding)
        words += f" removing: {joined(move.removing)}." * bool(move.removing)
        typer.echo(words)


@contextmanager
def printed_at_end(told: dict[str, Any], *, as_json: bool) -> Iterator[None]:
    """Print ``told`` as JSON if the block has filled it, also after an error or Ctrl-C."""
    try:
        yield
    except BaseException as error:
        if told:
            told["error"] = str(error) or "interrupted"
            if isinstance(error, ReassignmentError) and error.failures:
                told["failed"] = told.get("failed", {}) | errors_json(error.failures)
        raise
    finally:
        if told and as_json:
            print_json(told)


def rates_json(results: Mapping[int, KafkaError | None], rate: int) -> dict[str, Any]:
    done = [node for node, error in sorted(results.items()) if error is None]
    return {"brokers": done, "rate": rate, "failed": errors_json(results)}


def errors_json(failed: Mapping[Any, KafkaError | None]) -> dict[str, str]:
    """The errors by partition or broker, without what succeeded."""
    return {str(key): str(error) for key, error in sorted(failed.items()) if error is not None}


def lifted_json(lifted: Lifted) -> dict[str, Any]:
    return {
        "topics": lifted.topics,
        "brokers": lifted.brokers,
        "defaults": lifted.defaults,
        "still_needed": {"topics": lifted.needed_topics, "brokers": lifted.needed_brokers},
        "failed": {what: str(error) for what, error in lifted.failures.items()},
    }


def print_lifted(lifted: Lifted) -> None:
    if lifted.defaults:
        typer.echo("throttles of the broker defaults are removed", err=True)
    for what, each in (("brokers", lifted.brokers), ("topics", lifted.topics)):
        if each:
            typer.echo(f"throttles of {what} {joined(each)} are removed", err=True)
    needed = (("topics", lifted.needed_topics), ("brokers", lifted.needed_brokers))
    if stay := " and ".join(f"{what} {joined(each)}" for what, each in needed if each):
        typer.echo(f"throttles of {stay} stay: replicas may still be copied", err=True)
    for what, error in lifted.failures.items():
        print_message("error", f"the throttle of {what} could not be removed: {error}")


def throttles_json(found: Throttles) -> dict[str, Any]:
    return {
        "brokers": {
            node: {"rates": dict(now.rates), "ours": now.mark is not None}
            for node, now in found.brokers.items()
            if now.rates or now.mark
        },
        "defaults": dict(found.defaults),
        "topics": {
            name: {
                key: {"before": each.before, "ours": each.ours or ()}
                for key, each in now._asdict().items()
            }
            for name, now in found.topics.items()
            if now.any
        },
        "failed": {
            str(what): str(error)
            for failures in (found.failures, found.topic_failures)
            for what, error in failures.items()
        },
    }


def print_throttles(found: Throttles) -> None:
    if rows := list(_throttle_rows(found)):
        print_table(("of", "key", "value", "set by"), rows)
    elif not found.topic_failures and not found.failures:
        typer.echo("nothing is throttled")
    for what, failures in (("broker", found.failures), ("topic", found.topic_failures)):
        for name, error in failures.items():
            typer.echo(f"the throttles of {what} {name} are not known: {error}", err=True)


def _throttle_rows(found: Throttles) -> Iterator[tuple[str, ...]]:
    for key, rate in sorted(found.defaults.items()):
        yield "broker defaults", key, f"{shown(rate)}/s", ""
    for node, now in sorted(found.brokers.items()):
        for key, rate in sorted(now.rates.items()):
            ours = now.mark is not None and key in RATE_KEYS and now.mark.rate == rate
            yield f"broker {node}", key, f"{shown(rate)}/s", "kafkaclient" if ours else ""
    for name, lists in sorted(found.topics.items()):
        for kind, each in lists._asdict().items():
            key = f"{kind}.replication.throttled.replicas"
            for elements, owner in ((each.before, ""), (each.ours or (), "kafkaclient")):
                if elements:
                    yield f"topic {name}", key, _short(elements), owner


def _short(elements: tuple[str, ...]) -> str:
    more = f" and {len(elements) - 8} more" if len(elements) > 8 else ""
    return joined(elements[:8]) + more


def progress_json(progress: Progress) -> dict[str, Any]:
    totals = ("finished", "sum_replica_lag", "bytes_done", "bytes_total", "time_left_s")
    return picked(progress, *totals) | {
        "partitions_done": progress.done,
        "partitions_cancelled": progress.cancelled,
        "partitions": [
            each.partition._asdict()
            | picked(each, "done", "lag", "bytes_done", "bytes_total", "stuck", "cancelled")
            for each in progress.partitions
        ],
        "brokers": [
            {"broker": each.node_id} | picked(each, "lag", "bytes_left", "rate", "quota")
            for each in progress.brokers
        ],
    }


async def follow(reports: AsyncIterator[Progress]) -> Progress | None:
    """Show moves on stderr until they are over, on a terminal as bars; returns the last report."""
    console = stderr_console()
    if not console.is_terminal:
        return await _lines(reports, console)
    last: Progress | None = None
    with Live(console=console, auto_refresh=False, transient=True) as live:
        async for last in reports:
            live.update(_screen(last), refresh=True)
    if last is not None:
        console.print(line(last), markup=False, soft_wrap=True)
    return last


async def _lines(reports: AsyncIterator[Progress], console: Console) -> Progress | None:
    """Print a line every ten seconds, and a line for each move that gets stuck."""
    last: Progress | None = None
    printed = -LINE_EVERY_S
    known: set[str] = set()
    async for last in reports:
        stuck = {f"{each.partition} is stuck: {each.stuck}" for each in last.stuck}
        for words in sorted(stuck - known):
            console.print(words, markup=False, soft_wrap=True)
        known |= stuck
        now = time.monotonic()
        if now - printed >= LINE_EVERY_S or last.finished:
            printed = now
            console.print(line(last), markup=False, soft_wrap=True)
    return last


def line(progress: Progress) -> str:
    """A report in one line."""
    left = progress.time_left_s
    words = [
        f"{progress.done} of {len(progress.partitions)} partitions",
        f"{shown(progress.bytes_done)} of {shown(progress.bytes_total)}",
        f"{shown(progress.rate)}/s",
        f"lag {progress.sum_replica_lag:,} records",
    ]
    if progress.cancelled:
        words.insert(1, f"{progress.cancelled} cancelled")
    if not progress.finished:
        words.append("time left not known" if left is None else f"{duration(left)} left")
    return ", ".join(words)


def _screen(progress: Progress) -> Group:
    brokers = plain_table(None, ("to broker", "rate", "quota", "to come", "lag"))
    for each in progress.brokers:
        quota = "none" if each.quota is None else f"{shown(each.quota)}/s"
        left, rate = shown(each.bytes_left), f"{shown(each.rate)}/s"
        brokers.add_row(str(each.node_id), rate, quota, left, f"{each.lag:,}")
    waiting = [each for each in progress.partitions if not each.done]
    partitions = Table("partition", "", "", "lag", "", box=None, pad_edge=False)
    # Stuck partitions come first.
    for part in sorted(waiting, key=lambda each: (each.stuck is None, each.partition))[:_ROWS]:
        partitions.add_row(
            Text(str(part.partition)),
            ProgressBar(total=part.bytes_total or 1, completed=part.bytes_done, width=24),
            f"{shown(part.bytes_done)} of {shown(part.bytes_total)}",
            f"{part.lag:,}",
            Text(part.stuck or "", style="yellow"),
        )
    more = len(waiting) - _ROWS
    hidden = Text(f"and {more} more partitions" if more > 0 else "", style="dim")
    bar = ProgressBar(total=progress.bytes_total or 1, completed=progress.bytes_done)
    return Group(Text(line(progress)), bar, brokers, partitions, hidden)
