"""The results of the experiment as one HTML file."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from experiments.clients import JAVA, OURS
from experiments.experiment import REPORT
from experiments.figures import broker_share
from experiments.machine import machine_sentence
from experiments.slow_broker.compare import rows
from experiments.slow_broker.decisions import read_decisions
from experiments.slow_broker.figures import curves, decision_plots, latency_bars
from experiments.slow_broker.published import PUBLISHED
from experiments.slow_broker.settings import BASELINE
from kafkaclient.errors import KafkaError
from kafkaclient.pages import (
    cell,
    filled,
    latency_ecdf,
    latency_tail,
    legend,
    number,
    verdict,
    write_page,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from experiments.slow_broker.compare import Row
    from experiments.slow_broker.decisions import Decisions
    from experiments.slow_broker.published import Published
    from experiments.slow_broker.results import Results
    from kafkaclient.pages import Curve, Figure

__all__ = ["recorded_decisions", "write_report"]

_BAR_PX, _ROW_PX, _MARGIN_PX = 24, 210, 90

_HEADINGS = (
    *("records/s", "avg ms", "p50", "p95", "p99", "p99.9", "max"),
    *("steady<br>avg", "steady<br>p99", "MB to broker<br>{brokers}"),
    *("slow<br>share", "req/s", "avg<br>/Java", "p99<br>/Java", "req/s<br>/Java"),
    *("errors", "lost", "dupli-<br>cated", "reor-<br>dered"),
)


def write_report(folder: Path, results: Results) -> None:
    """Write ``report.html`` into the folder of the results, where the telemetry is, too."""
    by_rate = rows(results)
    recorded, missing = recorded_decisions(folder, results)
    drawn = {rate: curves(results, found) for rate, found in by_rate.items()}
    write_page(
        folder / REPORT,
        title="slow broker",
        body=filled(
            "experiments.slow_broker",
            "report.html",
            brokers=str(results.plan["brokers"]),
            lead=_lead(results),
            verdict=_verdict(results),
            caveat=_caveat(results),
            broker_list=_broker_list(results),
            published="\n".join(_published_rows(by_rate)),
            tables="\n".join(_table(results, rate, found) for rate, found in by_rate.items()),
            distributions="\n".join(
                _distribution(place, rate, drawn[rate]) for place, rate in enumerate(by_rate)
            ),
            shares="\n".join(
                f"<h3>{rate:,g} records/s</h3>{_plot(f'share{place}', len(found))}"
                for place, (rate, found) in enumerate(by_rate.items())
            ),
            decisions=_decisions_html(results, recorded, missing),
        ),
        figures=_figures(by_rate, drawn, recorded),
        machine=machine_sentence(results.machine) if results.machine else "",
    )


def recorded_decisions(folder: Path, results: Results) -> tuple[list[Decisions], str]:
    """The decisions of the recorded runs, and the reason if there are none."""
    try:
        found = [
            read_decisions(run.record.setting, folder / run.folder) for run in results.recorded
        ]
    except (ModuleNotFoundError, KafkaError, OSError) as error:
        return [], f"The telemetry cannot be read: {error}."
    reasons = [skipped.reason for skipped in results.skipped if skipped.setting == "telemetry"]
    return [run for run in found if run.seconds], "; ".join(reasons) or "No run was recorded."


def _figures(
    by_rate: dict[float, list[Row]],
    drawn: dict[float, list[Curve]],
    recorded: Sequence[Decisions],
) -> dict[str, Figure]:
    figures: dict[str, Figure] = {}
    for place, (rate, found) in enumerate(by_rate.items()):
        figures[f"bars{place}"] = latency_bars(found)
        figures[f"ecdf{place}"] = latency_ecdf(drawn[rate])
        figures[f"tail{place}"] = latency_tail(drawn[rate])
        figures[f"share{place}"] = broker_share(
            [(row.label, row.bytes_per_broker) for row in found]
        )
    if recorded:
        figures["decisions"] = decision_plots(recorded)
    return figures


# --- text ---


def _lead(results: Results) -> str:
    plan = results.plan
    rates = " and ".join(f"{rate:,g}" for rate in plan["rates"])
    runs = "once" if plan["repeat"] == 1 else f"{plan['repeat']} times (tables show medians)"
    late = (
        f"Every broker answers each Produce request {plan['delay_ms']:g} ms late, as if it wrote "
        "to an object store: the requests of a connection do not wait for each other."
        if plan.get("all_late")
        else f"Broker 0 answers each Produce request {plan['delay_ms']:g} ms late, one after the "
        "other on a connection; the others answer at once."
    )
    return (
        f"Records of {plan['record_size']} bytes without key, {rates} a second for "
        f"{plan['seconds']:g} s, into {plan['partitions']} partitions with one replica each on "
        f"{plan['brokers']} real Kafka brokers, every client and setting {runs}. {late} All "
        "clients go through the same proxies, with acks=all and idempotence."
    )


def _verdict(results: Results) -> str:
    notes = []
    if not results.complete:
        notes.append("The experiment was ended before it was complete.")
    notes += [
        f"Left out {skipped.client}: {skipped.setting}"
        + ("" if skipped.rate is None else f", {skipped.rate:,g}/s, run {skipped.run}")
        + f": {skipped.reason}"
        for skipped in results.skipped
    ]
    checked = sum(run.records for run in results.runs if run.lost is not None)
    bad = len(results.bad_runs)
    text = (
        f"{bad} of our runs had records refused, lost, duplicated or reordered; see the tables."
        if bad
        else f"An independent consumer read the {checked:,} records of the Python clients back: "
        "none of ours is lost, duplicated or reordered."
    )
    listed = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return verdict(text, good=not bad) + (f'<ul class="soft">{listed}</ul>' if listed else "")


def _caveat(results: Results) -> str:
    plan = results.plan
    differs = [
        text
        for text, same in (
            (f"{plan['delay_ms']:g} ms instead of 20", plan["delay_ms"] == 20),
            (f"{plan['brokers']} brokers instead of 3", plan["brokers"] == 3),
            (f"{plan['partitions']} partitions instead of 3", plan["partitions"] == 3),
            (f"{plan['record_size']} bytes instead of 512", plan["record_size"] == 512),
        )
        if not same
    ]
    if plan.get("all_late"):
        differs.insert(0, "all brokers late instead of one")
    return f" This run differs from the KIP's set-up: {', '.join(differs)}." if differs else ""


def _broker_list(results: Results) -> str:
    return " / ".join(map(str, range(results.plan["brokers"])))


# --- tables ---


def _published_rows(by_rate: dict[float, list[Row]]) -> Iterator[str]:
    for rate in sorted({published.rate for published in PUBLISHED}):
        here = {(row.client, row.setting): row for row in by_rate.get(rate, ())}
        for published in (found for found in PUBLISHED if found.rate == rate):
            measured = [
                (f"Java 4, {published.java}", here.get((JAVA, published.java or ""))),
                (f"kafkaclient, {published.ours}", here.get((OURS, published.ours))),
            ]
            yield from _published_group(
                published, [(name, row) for name, row in measured if row is not None]
            )
        default = here.get((OURS, "default"))
        if default is not None:
            yield (
                '<tr class="ours rule"><th scope=row>not in the KIP, '
                f"{rate:,g}/s</th>{_measured_cells('kafkaclient, default', default)}</tr>"
            )


def _published_group(published: Published, measured: Sequence[tuple[str, Row]]) -> Iterator[str]:
    heading = (
        f'<th scope=rowgroup rowspan="{1 + len(measured)}">{escape(published.name)}, '
        f"{published.rate:,g}/s</th>"
    )
    cells = [
        f"{published.mb_per_s:.2f}",
        *(f"{ms:,.0f}" for ms in (published.avg_ms, published.p99_ms, published.p999_ms)),
        " / ".join(f"{sent / 1e6:.1f}" for sent in published.bytes_per_broker),
        f"{published.slow_share:.2f}",
    ]
    yield (
        f'<tr class="rule">{heading}{cell("KIP-794, published", "text")}'
        f"{''.join(map(cell, cells))}</tr>"
    )
    for name, row in measured:
        yield f"<tr>{_measured_cells(name, row)}</tr>"


def _measured_cells(name: str, row: Row) -> str:
    cells = [
        f"{row.mb_per_s:.2f}",
        *(number(ms, 1) for ms in (row.avg_ms, row.p99_ms, row.p999_ms)),
        " / ".join(f"{sent / 1e6:.1f}" for sent in row.bytes_per_broker),
        number(row.slow_share, 2),
    ]
    return cell(escape(name), "text") + "".join(map(cell, cells))


def _table(results: Results, rate: float, found: Sequence[Row]) -> str:
    headings = "".join(
        f"<th>{heading}</th>".format(brokers=_broker_list(results)) for heading in _HEADINGS
    )
    repeat = max(row.runs for row in found)
    medians = f"Medians of {repeat} runs. " if repeat > 1 else ""
    steady_s = results.plan["steady_state_after_s"]
    return f"""<section>
<h2>{rate:,g} records/s</h2>
<p class="soft">{medians}Latency in milliseconds from handing a record to the client until its
acknowledgement is known, client start included; "steady" leaves out the records of the first
{steady_s:g} s. Java's percentiles are whole milliseconds. Bytes and requests as counted by the
proxies. "/Java" is the ratio to Java's producer with its defaults ({BASELINE.name}). Lost,
duplicated and reordered records are found by reading the topic back, except for those of Java's
tool, which does not number them.</p>
<div class="scroll"><table>
<thead><tr><th class="text">client: setting</th>{headings}</tr></thead>
<tbody>
{chr(10).join(map(_row, found))}
</tbody></table></div>
{_plot(f"bars{sorted(_rates(results)).index(rate)}", len(found))}
</section>"""


def _rates(results: Results) -> set[float]:
    return {run.rate or 0.0 for run in results.runs}


def _row(row: Row) -> str:
    cells = [
        f"{row.records_per_s:,.0f}",
        *(
            number(value, 1)
            for value in (
                *(row.avg_ms, row.p50_ms, row.p95_ms, row.p99_ms, row.p999_ms, row.max_ms),
                *(row.steady_avg_ms, row.steady_p99_ms),
            )
        ),
        " / ".join(f"{sent / 1e6:.1f}" for sent in row.bytes_per_broker),
        number(row.slow_share, 2),
        number(row.requests_per_s, 0),
        *(number(value, 2) for value in (row.avg_ratio, row.p99_ratio, row.requests_ratio)),
    ]
    counts = (row.errors, row.lost, row.duplicated, row.reordered)
    wrong = (cell("" if n is None else f"{n:,}", "bad" if n else "") for n in counts)
    css_class = ' class="ours"' if row.client == OURS else ""
    return (
        f"<tr{css_class}><th scope=row>{escape(row.label)}</th>"
        f"{''.join(map(cell, cells))}{''.join(wrong)}</tr>"
    )


# --- pictures ---


def _distribution(place: int, rate: float, drawn: Sequence[Curve]) -> str:
    return (
        f'<h3>{rate:,g} records/s</h3><p class="legend">{legend(drawn)}</p>'
        f'<div class="pair"><div id="ecdf{place}" class="plot"></div>'
        f'<div id="tail{place}" class="plot"></div></div>'
    )


def _plot(name: str, bars: int) -> str:
    return f'<div id="{name}" class="plot" style="height: {_MARGIN_PX + _BAR_PX * bars}px"></div>'


def _decisions_html(results: Results, recorded: Sequence[Decisions], missing: str) -> str:
    if not recorded:
        return f'<p class="soft">{escape(missing)}</p>'
    rate = results.recorded[0].record.rate or 0.0
    height = _MARGIN_PX + _ROW_PX * len(recorded)
    return (
        '<p class="soft">What our producer saw of a broker whenever it gave it a batch, in runs of '
        f"their own at {rate:,g} records/s with telemetry on: batches waiting, Produce requests in "
        "flight, and the window (how many it would allow); and each broker's part of the bytes. "
        'A line has a gap where a broker got nothing.</p><div class="scroll">'
        f'<div id="decisions" class="plot" style="height: {height}px; min-width: 1000px"></div>'
        "</div>"
    )
