"""The results of the experiment as one HTML file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.experiment import REPORT
from experiments.machine import machine_sentence
from experiments.word_count.clients import CLIENTS
from kafkaclient.pages import cell, filled, row, verdict, write_page

if TYPE_CHECKING:
    from pathlib import Path

    from experiments.word_count.results import Median, Results
    from kafkaclient.pages import Figure

__all__ = ["figures", "runs_by_client", "write_report"]


def write_report(folder: Path, results: Results) -> None:
    """Write ``report.html`` into the folder."""
    write_page(
        folder / REPORT,
        title="word count",
        body=filled(
            "experiments.word_count",
            "report.html",
            lead=_lead(results),
            skipped="".join(
                verdict(f"{each.client}, run {each.run}, failed: {each.reason}")
                for each in results.skipped
            ),
            rows="\n".join(map(_row, results.medians())),
        ),
        figures={"runs": runs_by_client(results)},
        machine=machine_sentence(results.machine) if results.machine else "",
    )


def figures(found: Median) -> tuple[str, ...]:
    """The figures of a client for a table; the last is its wrong counts."""
    promise = "" if CLIENTS[found.client].exactly_once else " (at least once)"
    return (
        f"{found.words_per_s:,.0f}",
        "-" if found.ours_is is None else f"{found.ours_is:.1f} times",
        f"{found.cpu_us_per_word:.1f}",
        f"{found.startup_s:.1f}",
        f"{found.rss_mb:,.0f}",
        f"{found.changes:,.0f}",
        f"{found.wrong:,}{promise}",
    )


def runs_by_client(results: Results) -> Figure:
    """The speed of each run."""
    clients = list(dict.fromkeys(run.client for run in results.runs))
    return {
        "data": [
            {
                "type": "bar",
                "name": client,
                "x": [str(run.run) for run in results.runs if run.client == client],
                "y": [run.words_per_s for run in results.runs if run.client == client],
            }
            for client in clients
        ],
        "layout": {
            "barmode": "group",
            "xaxis": {"title": {"text": "run"}, "type": "category"},
            "yaxis": {"title": {"text": "words/s"}, "rangemode": "tozero"},
        },
    }


def _lead(results: Results) -> str:
    plan = results.plan
    return (
        f"{plan['words']:,} words, {plan['vocabulary']:,} of them different, in lines of "
        f"{plan['words_per_line']}, in a topic with {plan['partitions']} partitions on one broker. "
        "Each client is one process, with its changelog on, and counts the same topic; "
        f"{plan['runs']} runs of each, in turns. Another client's consumer compares every count."
    )


def _row(found: Median) -> str:
    *cells, wrong = figures(found)
    last = cell(wrong, "bad") if found.wrong else cell(wrong)
    return row(found.client, [*map(cell, cells), last])
