"""The results of the experiment as one HTML file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.clients import JAVA, OURS
from experiments.experiment import REPORT
from experiments.machine import machine_sentence
from experiments.partition_limits.published import LEADERS_GONE_MIN, THROUGHPUT_MBPS
from kafkaclient.pages import cell, filled, number, row, verdict, write_page

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from experiments.partition_limits.results import Cell, Results
    from kafkaclient.pages import Figure

__all__ = ["PUBLISHED", "durations", "mbps_rows", "throughput", "write_report"]

PUBLISHED = "KIP-578"
_COLORS = {OURS: "#e8743b", JAVA: "#3b82f6", PUBLISHED: "#8d99ae"}


def write_report(folder: Path, results: Results) -> None:
    """Write ``report.html`` into the folder."""
    counts = sorted({found.partitions for found in results.cells})
    write_page(
        folder / REPORT,
        title="what partitions cost",
        body=filled(
            "experiments.partition_limits",
            "report.html",
            lead=_lead(results),
            verdict=_verdict(results),
            left_out="".join(verdict(": ".join(entry)) for entry in results.left_out.items()),
            heads="".join(f"<th>{count:,}</th>" for count in counts),
            rates="\n".join(_rate_rows(results.cells, counts)),
            clients="\n".join(line for found in results.cells for line in _client_rows(found)),
            times="\n".join(map(_time_row, results.cells)),
            left_heads="".join(f"<th>{left:,}</th>" for left in LEADERS_GONE_MIN),
            left_row="".join(
                cell(f"{minutes:g}" if minutes > 1 else "&lt; 1")
                for minutes in LEADERS_GONE_MIN.values()
            ),
        ),
        figures={
            "rate1": throughput(results.cells, 1),
            "rate3": throughput(results.cells, 3),
            "times": durations(results.cells),
        },
        machine=machine_sentence(results.machine),
    )


def mbps_rows(cells: Sequence[Cell]) -> Iterator[tuple[int, str, dict[int, float]]]:
    """(replication factor, client or the KIP, Mbit/s by partitions on a broker)."""
    for replication in sorted({found.replication for found in cells}):
        own = [found for found in cells if found.replication == replication]
        for client in (OURS, JAVA):
            rates = {c.partitions: rate for c in own if (rate := c.mbps(client)) is not None}
            if rates:
                yield replication, client, rates
        published = THROUGHPUT_MBPS.get(replication)
        if published:
            yield replication, PUBLISHED, published


def throughput(cells: Sequence[Cell], replication: int) -> Figure:
    """Mbit/s by partitions on each broker, on logarithmic axes."""
    return {
        "data": [
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": client,
                "x": list(rates),
                "y": [round(rate, 2) for rate in rates.values()],
                "line": {
                    "color": _COLORS[client],
                    "width": 2,
                    "dash": "dot" if client == PUBLISHED else "solid",
                },
            }
            for factor, client, rates in mbps_rows(cells)
            if factor == replication
        ],
        "layout": {
            "title": {"text": f"replication factor {replication}", "x": 0.02, "y": 0.02},
            "xaxis": {"title": {"text": "partitions on each broker"}, "type": "log"},
            "yaxis": {"title": {"text": "Mbit/s"}, "type": "log"},
        },
    }


def durations(cells: Sequence[Cell]) -> Figure:
    """Seconds of creation and deletion, by partitions on each broker."""
    return {
        "data": [
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": f"{name}, factor {replication}",
                "x": [found.partitions for found in cells if found.replication == replication],
                "y": [
                    getattr(found, attribute) for found in cells if found.replication == replication
                ],
                "line": {"color": color, "width": 2, "dash": dash},
            }
            for replication, dash in zip(
                sorted({found.replication for found in cells}), ("solid", "dot"), strict=False
            )
            for name, attribute, color in (
                ("directories", "directories_s", "#e8743b"),
                ("in sync", "led_s", "#3b82f6"),
                ("removed", "removed_s", "#14a38b"),
            )
        ],
        "layout": {
            "xaxis": {"title": {"text": "partitions on each broker"}, "type": "log"},
            "yaxis": {"title": {"text": "seconds"}, "type": "log"},
        },
    }


def _lead(results: Results) -> str:
    plan = results.plan
    return (
        f"KIP-578's experiment on {plan['brokers']} real brokers with {plan['heap_mb']:,} MB each, "
        "all on one machine: a topic is created, written to as fast as possible "
        f"({plan['record_size']:,} bytes a record, default settings, {plan['seconds']:g} s; Java "
        "sends as many records), and deleted; then the next one."
    )


def _verdict(results: Results) -> str:
    wrong = [failure for found in results.cells for failure in found.failures]
    wrong += [
        f"{sent.client}: {sent.failed:,} records failed with {found.partitions:,} partitions on "
        f"each broker, replication factor {found.replication}"
        for found in results.cells
        for sent in found.sent
        if sent.failed
    ]
    if wrong:
        return verdict("; ".join(wrong))
    return verdict("Every record that was sent was acknowledged.", good=True)


def _rate_rows(cells: Sequence[Cell], counts: Sequence[int]) -> Iterator[str]:
    for replication, client, rates in mbps_rows(cells):
        figures = (cell(number(rates.get(count), 1)) for count in counts)
        yield row(f"{replication}, {client}", figures, "ours" if client == OURS else "")


def _client_rows(found: Cell) -> Iterator[str]:
    for sent in found.sent:
        cells = [
            cell(f"{sent.records:,}"),
            cell(f"{sent.records_per_s:,.0f}"),
            *(cell(number(value, 1)) for value in (sent.avg_ms, sent.p99_ms)),
            cell(f"{sent.failed:,}", "bad" if sent.failed else ""),
        ]
        yield row(f"{_name(found)}, {sent.client}", cells)


def _time_row(found: Cell) -> str:
    times = (cell(number(value, 1)) for value in found.times)
    return row(_name(found), [cell(f"{found.topic_partitions:,}"), *times])


def _name(found: Cell) -> str:
    return f"{found.partitions:,} on each broker, replication factor {found.replication}"
