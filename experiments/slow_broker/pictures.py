"""The slow-broker experiment's pictures as SVG files, for the documentation.

They show what ``report.html`` shows. Their colors suit light pages and dark pages.
"""

from __future__ import annotations

from importlib import import_module
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from experiments.clients import OURS
from experiments.figures import broker_name
from experiments.slow_broker.compare import rows
from experiments.slow_broker.figures import CLIENT_COLORS, DECISION_COLUMNS, curves
from experiments.slow_broker.report import recorded_decisions
from experiments.slow_broker.results import Results
from kafkaclient.pages import LATENCY_TICKS, TAIL_TICKS, broker_color, nines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from experiments.slow_broker.compare import Row
    from experiments.slow_broker.decisions import Decisions
    from kafkaclient.pages import Curve

__all__ = ["BAR_INCHES", "STYLE", "TEXT", "draw_pictures", "latency_ticks", "subplots"]

TEXT = "#7a8490"  # contrast of four to one with white and with near-black
_GRID = "#7a849040"
_DECISIONS_OF = ("default", "linger 0", "kip794 adaptive linger 5", "sticky linger 5")
BAR_INCHES = 0.24
NAMES = {
    OURS: OURS,
    "aiokafka": "aiokafka",
    "confluent": "librdkafka (confluent-kafka)",
    "franz-go": "franz-go",
    "java": "Java",
}

STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "kafkaclient",  # equal results make equal files
    "font.family": "sans-serif",
    "font.size": 9,
    "text.color": TEXT,
    "axes.labelcolor": TEXT,
    "axes.edgecolor": _GRID,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": _GRID,
    "xtick.color": TEXT,
    "ytick.color": TEXT,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
}


def draw_pictures(results_folder: Path, pictures: Path) -> list[Path]:
    """The files of all pictures that the results in a folder allow.

    Raises ConfigError if the folder has no results, ModuleNotFoundError without matplotlib.
    """
    results = Results.read(results_folder)
    decisions, _missing = recorded_decisions(results_folder, results)
    matplotlib = import_module("matplotlib")
    matplotlib.use("svg")
    pictures.mkdir(parents=True, exist_ok=True)
    written = []
    with matplotlib.rc_context(STYLE):
        for name, figure in _figures(results, decisions):
            path = pictures / f"{name}.svg"
            figure.savefig(path, transparent=True, metadata={"Date": None, "Creator": None})
            written.append(path)
    return written


def draw_at_a_glance(
    path: Path, rate: float, late_ms: Mapping[str, float], stalled: Mapping[str, Any]
) -> None:
    """Two panels: without keys and one broker late, the average latency by client; with keys and
    one that takes nothing, the records for the others (results of benchmarks/stalled_broker.py).

    Raises ModuleNotFoundError without matplotlib.
    """
    matplotlib = import_module("matplotlib")
    matplotlib.use("svg")
    with matplotlib.rc_context(STYLE):
        figure = _at_a_glance(rate, late_ms, stalled)
        figure.savefig(path, transparent=True, metadata={"Date": None, "Creator": None})


def _figures(results: Results, decisions: Sequence[Decisions]) -> Iterator[tuple[str, Any]]:
    for rate, found in rows(results).items():
        yield f"latency-{rate:g}", _latency(rate, found)
        yield f"distribution-{rate:g}", _distribution(rate, curves(results, found))
        yield f"share-{rate:g}", _share(rate, found)
    drawn = [run for run in decisions if run.name in _DECISIONS_OF]
    if drawn:
        yield "decisions", _decisions(drawn)


def subplots(lines: int, columns: int, width: float, height: float) -> tuple[Any, Any]:
    """A figure of this size in inches, and its axes."""
    figure = import_module("matplotlib.figure").Figure(figsize=(width, height))
    return figure, figure.subplots(lines, columns, squeeze=False)


def _latency(rate: float, found: Sequence[Row]) -> Any:
    figure, axes = subplots(1, 2, 10, 0.9 + BAR_INCHES * len(found))
    for axis, title, values in (
        (axes[0][0], f"average latency at {rate:,g} records/s, ms", [row.avg_ms for row in found]),
        (axes[0][1], "p99, ms", [row.p99_ms for row in found]),
    ):
        _bars(axis, title, [row.client for row in found], values)
    axes[0][0].set_yticks(range(len(found)), [row.label for row in found])
    for label, row in zip(axes[0][0].get_yticklabels(), found, strict=True):
        label.set_fontweight("bold" if row.client == OURS else "normal")
    return figure


def _bars(
    axis: Any, title: str, clients: Sequence[str], values: Sequence[float | None], digits: int = 1
) -> None:
    """A bar for each client, from the top, on a linear axis."""
    colors = [CLIENT_COLORS.get(client, TEXT) for client in clients]
    bars = axis.barh(range(len(values)), [each or 0 for each in values], color=colors, height=0.72)
    labels = ["not measured" if each is None else f"{each:,.{digits}f}" for each in values]
    axis.bar_label(bars, labels, padding=3, fontsize=8, color=TEXT)
    axis.set_title(title)
    axis.set_xlim(0, 1.15 * max((each for each in values if each), default=1.0))
    axis.set_xticks([])
    axis.margins(y=0.01)
    axis.grid(visible=False)
    axis.set_yticks(range(len(values)), [])
    axis.invert_yaxis()


def _at_a_glance(rate: float, late: Mapping[str, float], stalled: Mapping[str, Any]) -> Any:
    seconds = stalled["options"]["stall"]
    others = {
        client.removesuffix("-send"): run["during, well"]["acked"] / seconds
        for client, run in stalled["runs"].items()
        if client in (f"{OURS}-send", *NAMES)
    }
    clients = [client for client in NAMES if client in late or client in others]
    figure, axes = subplots(1, 2, 10, 0.9 + BAR_INCHES * len(clients))
    title = f"without keys, one of three brokers 20 ms late:\naverage latency at {rate:,g}/s, ms"
    _bars(axes[0][0], title, clients, [late.get(client) for client in clients])
    due = stalled["options"]["rate"] * (
        1 - stalled["options"]["stalled"] / stalled["options"]["brokers"]
    )
    title = (
        f"with keys, one of three brokers takes nothing:\nrecords/s for the others, of {due:,.0f}"
    )
    _bars(axes[0][1], title, clients, [others.get(client) for client in clients], digits=0)
    axes[0][0].set_yticks(range(len(clients)), [NAMES[client] for client in clients])
    axes[0][0].get_yticklabels()[0].set_fontweight("bold")
    return figure


def _distribution(rate: float, drawn: Sequence[Curve]) -> Any:
    figure, ((ecdf, tail),) = subplots(1, 2, 10, 4.2)
    for curve in drawn:
        style = {
            "color": curve.color,
            "label": curve.name,
            "linewidth": 1.0 if curve.sketched else 1.7,
            "linestyle": ":" if curve.sketched else "-",
            "marker": "." if curve.sketched else None,
        }
        points = [(share, max(ms, 0.1)) for share, ms in curve.points]
        ecdf.plot([ms for _share, ms in points], [share for share, _ms in points], **style)
        known = [(share, ms) for share, ms in points if share < 100]
        tail.plot([nines(share) for share, _ms in known], [ms for _share, ms in known], **style)
    ecdf.set_title(f"records acknowledged within a time, %, at {rate:,g} records/s")
    ecdf.set_xscale("log")
    ecdf.set_xlabel("latency, ms")
    ecdf.set_ylim(0, 101)
    latency_ticks(ecdf.xaxis, ecdf.get_xlim())
    tail.set_title("latency by percentile, ms")
    tail.set_yscale("log")
    tail.set_xticks([nines(tick) for tick in TAIL_TICKS], [f"{tick:g}" for tick in TAIL_TICKS])
    tail.set_xlim(0, 4)
    latency_ticks(tail.yaxis, tail.get_ylim())
    figure.legend(*ecdf.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def _share(rate: float, found: Sequence[Row]) -> Any:
    figure, ((axis,),) = subplots(1, 1, 10, 1.1 + BAR_INCHES * len(found))
    brokers = max(len(row.bytes_per_broker) for row in found)
    left = [0.0] * len(found)
    for broker in range(brokers):
        shares = [
            100 * row.bytes_per_broker[broker] / (sum(row.bytes_per_broker) or 1) for row in found
        ]
        bars = axis.barh(
            range(len(found)),
            shares,
            left=left,
            height=0.72,
            color=broker_color(broker),
            label=broker_name(broker),
        )
        axis.bar_label(
            bars,
            [f"{share:.0f} %" for share in shares],
            label_type="center",
            fontsize=8,
            color="#ffffff",
        )
        left = [start + share for start, share in zip(left, shares, strict=True)]
    for place in range(1, brokers):
        axis.axvline(100 * place / brokers, color="#ffffff", linestyle=":", linewidth=1.2)
    axis.set_title(f"share of the bytes at {rate:,g} records/s, %; dotted: equal shares")
    axis.set_yticks(range(len(found)), [row.label for row in found])
    axis.set_xlim(0, 100)
    axis.margins(y=0.01)
    axis.grid(visible=False)
    axis.invert_yaxis()
    figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=brokers)
    return figure


def _decisions(drawn: Sequence[Decisions]) -> Any:
    figure, axes = subplots(len(drawn), len(DECISION_COLUMNS), 12, 0.6 + 1.9 * len(drawn))
    for run, line in zip(drawn, axes, strict=True):
        for axis, (title, attribute) in zip(line, DECISION_COLUMNS, strict=True):
            for broker, series in run.brokers.items():
                values = [
                    float("nan") if value is None else value for value in getattr(series, attribute)
                ]
                axis.plot(
                    run.seconds,
                    values,
                    color=broker_color(broker),
                    linewidth=1.2,
                    label=broker_name(broker),
                )
            axis.set_title(title)
            axis.set_ylim(bottom=0, top=1 if attribute == "share" else None)
        line[0].set_ylabel("\n".join(wrap(run.name, 20)), fontweight="bold")
    for axis in axes[-1]:
        axis.set_xlabel("seconds")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=6)
    return figure


def latency_ticks(
    axis: Any, limits: tuple[float, float], at: Sequence[int] = LATENCY_TICKS
) -> None:
    """Label a logarithmic axis of milliseconds."""
    ticks = [tick for tick in at if limits[0] <= tick <= limits[1]]
    axis.set_ticks(ticks, [f"{tick:,}" for tick in ticks])
    axis.set_minor_locator(import_module("matplotlib.ticker").NullLocator())
