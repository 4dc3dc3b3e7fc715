"""Moves of replicas as tables, lines, bars and JSON."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from kafkaclient.admin.reassign.estimate import shown
from kafkaclient.cli.admin import print_table
from kafkaclient.cli.run import stderr_console, stdout_console

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from kafkaclient.admin import Estimate, Lifted, PartitionState, Progress, Throttles
    from kafkaclient.types import TopicPartition
    from kafkaclient.wire.reassignments import OngoingReassignment

__all__ = [
    "duration",
    "estimate_json",
    "follow",
    "lifted_json",
    "line",
    "print_estimate",
    "print_lifted",
    "print_ongoing",
    "print_throttles",
    "progress_json",
    "state_json",
    "throttles_json",
]

_ROWS = 20
"""Partitions shown while they move; a screen has no room for more."""

_LINE_EVERY_S = 10.0


# --- estimates --------------------------------------------------------------------------------


def estimate_json(found: Estimate, quota: int | None, network: int | None) -> dict[str, Any]:
    safe = found.safe_range(network)
    return {
        "partitions": found.partitions,
        "total_partitions": found.total_partitions,
        "move_ratio": found.move_ratio,
        "bytes_to_move": found.bytes_to_move,
        "bytes_in": {str(node): count for node, count in sorted(found.bytes_in.items())},
        "bytes_out": {str(node): count for node, count in sorted(found.bytes_out.items())},
        "inbound": found.inbound,
        "silent": {str(node): why for node, why in sorted(found.silent.items())},
        "waiting": list(found.waiting),
        "leader_changes": found.leader_changes,
        "quota": quota,
        "safe_range": {"above": safe.below, "below": safe.above},
        "move_time_s": None if quota is None else found.move_time_s(quota),
        "expected_s": None if quota is None else found.expected_s(quota),
    }


def print_estimate(found: Estimate, quota: int | None, network: int | None) -> None:
    safe = found.safe_range(network)
    rows = [
        ("partitions that get new replicas", f"{found.partitions:,} of {found.total_partitions:,}"),
        ("leaders that change", f"{found.leader_changes:,}"),
        ("MoveRatio", f"{found.move_ratio:.3f}"),
        ("bytes to move", shown(found.bytes_to_move)),
        ("comes into a broker (IN)", f"{shown(found.inbound)}/s"),
    ]
    upper = "" if safe.above is None else f" and below {shown(safe.above)}/s"
    between = "none" if safe.is_empty else f"above {shown(safe.below)}/s{upper}"
    rows.append(("safe quota (IN < T < N - IN/R)", between))
    if quota is not None:
        rows.append(("quota (T)", f"{shown(quota)}/s"))
        rows.append(("MoveTime by KIP-73", _time(found.move_time_s(quota))))
        rows.append(("expected, by the busiest broker", _time(found.expected_s(quota))))
    print_table({"": "", "value": "right"}, rows)
    for node, why in sorted(found.silent.items()):
        stderr_console().print(
            f"warning: broker {node} did not tell what it has, the estimate is without it: {why}",
            markup=False,
            soft_wrap=True,
        )
    for topic in found.waiting:
        stderr_console().print(
            f"warning: topic {topic} takes no records with acks=all while it moves: "
            "min.insync.replicas is more than its replicas, and the new ones count as soon as the "
            "move begins. Lower it until the move is over (kafkaclient configs alter --topic "
            f"{topic} --add-config min.insync.replicas=1)",
            markup=False,
            soft_wrap=True,
        )
    if quota is not None and found.is_coarse(quota):
        stderr_console().print(
            "[yellow]note:[/] below about 1 MB/s a single fetch (replica.fetch.response.max.bytes) "
            "exceeds the quota for longer than brokers look back",
            soft_wrap=True,
        )


def _time(seconds: float | None) -> str:
    return "never ends" if seconds is None else duration(seconds)


def duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes}:{rest:02}"


# --- states -----------------------------------------------------------------------------------


def print_ongoing(moves: Mapping[TopicPartition, OngoingReassignment]) -> None:
    """In the words of Kafka's tool."""
    console = stdout_console()
    if not moves:
        console.print("No partition reassignments found.")
        return
    console.print("Current partition reassignments:")
    for partition, move in sorted(moves.items()):
        words = f"{partition}: replicas: {_nodes(move.replicas)}."
        words += f" adding: {_nodes(move.adding)}." * bool(move.adding)
        words += f" removing: {_nodes(move.removing)}." * bool(move.removing)
        console.print(words, markup=False, soft_wrap=True)


def state_json(state: PartitionState) -> dict[str, Any]:
    return {
        **state.partition._asdict(),
        "state": state.state.value,
        "target": list(state.target),
        "replicas": list(state.replicas),
    }


def lifted_json(lifted: Lifted) -> dict[str, Any]:
    return {
        "topics": list(lifted.topics),
        "brokers": list(lifted.brokers),
        "still_needed": {
            "topics": list(lifted.needed_topics),
            "brokers": list(lifted.needed_brokers),
        },
        "failed": {what: str(error) for what, error in lifted.failures.items()},
    }


def print_lifted(lifted: Lifted) -> None:
    console = stderr_console()
    for what, each in (("brokers", lifted.brokers), ("topics", lifted.topics)):
        if each:
            console.print(f"throttles of {what} {_nodes(each)} are removed", markup=False)
    if lifted.needed_topics:
        console.print(
            f"throttles of topics {_nodes(lifted.needed_topics)} and brokers "
            f"{_nodes(lifted.needed_brokers)} stay: replicas are still being copied",
            markup=False,
            soft_wrap=True,
        )
    for what, error in lifted.failures.items():
        console.print(
            f"[red]error:[/] the throttle of {escape(what)} is left behind: {escape(str(error))}",
            soft_wrap=True,
        )


def throttles_json(found: Throttles) -> dict[str, Any]:
    return {
        "brokers": {
            str(node): {"rates": dict(now.rates), "ours": now.mark is not None}
            for node, now in found.brokers.items()
            if now.rates or now.mark
        },
        "topics": {
            name: {
                key: {"before": list(each.before), "ours": list(each.ours or ())}
                for key, each in zip(("leader", "follower"), now, strict=True)
            }
            for name, now in found.topics.items()
            if now.any
        },
        "failed": {
            **{str(node): str(error) for node, error in found.failures.items()},
            **{name: str(error) for name, error in found.topic_failures.items()},
        },
    }


def print_throttles(found: Throttles) -> None:
    rows = []
    for node, now in sorted(found.brokers.items()):
        for key, rate in sorted(now.rates.items()):
            ours = now.mark is not None and now.mark.rate == rate
            rows.append((f"broker {node}", key, f"{shown(rate)}/s", "kafkaclient" if ours else ""))
    for name, lists in sorted(found.topics.items()):
        for key, each in zip(("leader", "follower"), lists, strict=True):
            what = f"{key}.replication.throttled.replicas"
            for elements, owner in ((each.before, ""), (each.ours or (), "kafkaclient")):
                if elements:
                    rows.append((f"topic {name}", what, _short(elements), owner))
    if rows:
        print_table({"of": "", "key": "", "value": "", "set by": ""}, rows)
    elif not found.topic_failures and not found.failures:
        stdout_console().print("nothing is throttled")
    told = {f"broker {node}": error for node, error in found.failures.items()}
    told |= {f"topic {name}": error for name, error in found.topic_failures.items()}
    for what, error in told.items():
        stderr_console().print(f"{what} did not tell: {error}", markup=False, soft_wrap=True)


def _short(elements: tuple[str, ...]) -> str:
    more = f" and {len(elements) - 8} more" if len(elements) > 8 else ""
    return ",".join(elements[:8]) + more


def _nodes(nodes: Any) -> str:
    return ",".join(map(str, nodes))


# --- progress ---------------------------------------------------------------------------------


def progress_json(progress: Progress) -> dict[str, Any]:
    return {
        "finished": progress.finished,
        "partitions_done": progress.done,
        "partitions": [
            {
                **each.partition._asdict(),
                "done": each.done,
                "lag": each.lag,
                "bytes_done": each.bytes_done,
                "bytes_total": each.bytes_total,
                "stuck": each.stuck,
            }
            for each in progress.partitions
        ],
        "brokers": [
            {
                "broker": each.node_id,
                "lag": each.lag,
                "bytes_left": each.bytes_left,
                "rate": each.rate,
                "quota": each.quota,
            }
            for each in progress.brokers
        ],
        "sum_replica_lag": progress.sum_replica_lag,
        "bytes_done": progress.bytes_done,
        "bytes_total": progress.bytes_total,
        "time_left_s": progress.time_left_s,
    }


async def follow(
    looks: AsyncIterator[Progress], *, tell: Callable[[Progress], None] | None = None
) -> Progress | None:
    """Show moves on stderr until they are over, on a terminal as bars; the last look. ``tell``
    gets each one instead."""
    console = stderr_console()
    last: Progress | None = None
    if tell is not None:
        async for last in looks:
            tell(last)
        return last
    if not console.is_terminal:
        return await _lines(looks)
    with Live(console=console, auto_refresh=False, transient=True) as live:
        async for last in looks:
            live.update(_screen(last), refresh=True)
    if last is not None:
        console.print(line(last), markup=False, soft_wrap=True)
    return last


async def _lines(looks: AsyncIterator[Progress]) -> Progress | None:
    """A line now and then, and whenever something is stuck that was not."""
    console = stderr_console()
    last: Progress | None = None
    told = -_LINE_EVERY_S
    known: set[str] = set()
    async for last in looks:
        stuck = {f"{each.partition} is stuck: {each.stuck}" for each in last.stuck}
        for words in sorted(stuck - known):
            console.print(words, markup=False, soft_wrap=True)
        known |= stuck
        now = time.monotonic()
        if now - told >= _LINE_EVERY_S or last.finished:
            told = now
            console.print(line(last), markup=False, soft_wrap=True)
            sys.stderr.flush()
    return last


def line(progress: Progress) -> str:
    """A look in one line."""
    left = progress.time_left_s
    words = [
        f"{progress.done} of {len(progress.partitions)} partitions",
        f"{shown(progress.bytes_done)} of {shown(progress.bytes_total)}",
        f"{shown(progress.rate)}/s",
        f"lag {progress.sum_replica_lag:,} records",
    ]
    if not progress.finished:
        words.append("no time known" if left is None else f"{duration(left)} left")
    return ", ".join(words)


def _screen(progress: Progress) -> Group:
    brokers = Table(box=None, pad_edge=False)
    for header in ("to broker", "rate", "quota", "to come", "lag"):
        brokers.add_column(header, justify="right")
    for each in progress.brokers:
        quota = "none" if each.quota is None else f"{shown(each.quota)}/s"
        left, rate = shown(each.bytes_left), f"{shown(each.rate)}/s"
        brokers.add_row(str(each.node_id), rate, quota, left, f"{each.lag:,}")
    waiting = [each for each in progress.partitions if not each.done]
    partitions = Table(box=None, pad_edge=False)
    for header in ("partition", "", "", "lag", ""):
        partitions.add_column(header)
    # What is stuck comes first.
    for part in sorted(waiting, key=lambda each: (each.stuck is None, each.partition))[:_ROWS]:
        total = part.bytes_total or 1
        partitions.add_row(
            Text(str(part.partition)),
            ProgressBar(total=total, completed=part.bytes_done, width=24),
            f"{shown(part.bytes_done)} of {shown(part.bytes_total)}",
            f"{part.lag:,}",
            Text(part.stuck or "", style="yellow"),
        )
    more = len(waiting) - _ROWS
    hidden = Text(f"and {more} partitions more", style="dim") if more > 0 else Text("")
    bar = ProgressBar(total=progress.bytes_total or 1, completed=progress.bytes_done)
    return Group(Text(line(progress)), bar, brokers, partitions, hidden)
