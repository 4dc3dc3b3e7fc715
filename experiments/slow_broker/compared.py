"""The tables and the picture of docs/figures/slow-broker.md, of an experiment's results."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from experiments.clients import OURS
from experiments.slow_broker.compare import rows
from experiments.slow_broker.figures import CLIENT_COLORS
from experiments.slow_broker.fleet import FLEET_RATE
from experiments.slow_broker.pictures import STYLE, TEXT, latency_ticks, subplots

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from experiments.slow_broker.compare import Row
    from experiments.slow_broker.fleet import Fleet
    from experiments.slow_broker.results import Results

__all__ = ["compared_table", "draw_compared"]

_COLORS = {
    "default": "#e8743b",
    "floor 0": "#f2a65a",
    "prequal": "#6a994e",
    "peak-ewma": "#c9a227",
    "kip794 adaptive linger 5": "#d1495b",
}
_KEPT_UP = 0.95  # of the rate; a client that sent less is marked

Name = tuple[str, str]


def draw_compared(path: Path, results: Results) -> None:
    """Latency by rate, and by the number of producers. Raises ModuleNotFoundError without
    matplotlib."""
    matplotlib = import_module("matplotlib")
    matplotlib.use("svg")
    with matplotlib.rc_context(STYLE):
        _figure(results).savefig(path, transparent=True, metadata={"Date": None, "Creator": None})


def compared_table(results: Results) -> str:
    """Rows: clients and settings; columns: rates. Then of ours one with numbers of producers.
    Below them what the figures mean."""
    by_rate = {rate: {_name(row): row for row in found} for rate, found in rows(results).items()}
    lines = _heading("client", "setting", *(f"{rate:,g}/s" for rate in by_rate))
    lowest = {
        rate: min((row.steady_avg_ms for row in found.values() if row.steady_avg_ms), default=0.0)
        for rate, found in by_rate.items()
    }
    for client, setting in _names(by_rate.values()):
        cells = [client, setting]
        for rate, found in by_rate.items():
            row = found.get((client, setting))
            cells.append("" if row is None else _cell(row, lowest[rate]))
        lines.append(_line(cells))
    if results.fleets:
        lines += ["\n", *_fleets(results.fleets)]
    return "".join([*lines, "\n", _how(results), "\n"])


def _fleets(fleets: Sequence[Fleet]) -> list[str]:
    counts = sorted({fleet.producers for fleet in fleets})
    found = {(fleet.setting, fleet.producers): fleet for fleet in fleets}
    names = (f"{count:,} producer{'s' * (count > 1)}" for count in counts)
    lines = _heading("setting of kafkaclient", *names, "slow share", "most / fewest")
    for setting in dict.fromkeys(fleet.setting for fleet in fleets):
        of = [found.get((setting, count)) for count in counts]
        cells = [f"{fleet.avg_ms:.1f} / {fleet.p99_ms:.1f}" if fleet else "" for fleet in of]
        last = of[-1]
        cells += [f"{last.slow_share:.2f}", f"{last.evenness:.2f}"] if last else ["", ""]
        lines.append(_line([setting, *cells]))
    return lines


def _heading(*names: str) -> list[str]:
    return [_line(names), _line(["---"] * len(names))]


def _cell(row: Row, lowest: float) -> str:
    if row.steady_avg_ms is None or row.steady_p99_ms is None:
        return "?"
    average = f"{row.steady_avg_ms:.1f}"
    text = (
        f"**{average}** / {row.steady_p99_ms:.0f}"
        if row.steady_avg_ms <= lowest
        else f"{average} / {row.steady_p99_ms:.0f}"
    )
    return (
        text if row.records_per_s >= _KEPT_UP * row.rate else f"{text} ({row.records_per_s:,.0f}/s)"
    )


def _how(results: Results) -> str:
    plan = results.plan
    runs = "one run" if plan["repeat"] == 1 else f"medians of {plan['repeat']} runs"
    many = (
        f" The columns of producers are in virtual time, with {FLEET_RATE:g} records/s each; the "
        "last two columns are of the largest number: broker 0's share of the bytes, and the most "
        "bytes of another broker as a multiple of the fewest."
        if results.fleets
        else ""
    )
    return (
        f"Average / p99 in milliseconds, {runs} of {plan['seconds']:g} s without the first "
        f"{plan['steady_state_after_s']:g} s, records of {plan['record_size']} bytes without key; "
        f"broker 0 of {plan['brokers']} answers {plan['delay_ms']:g} ms late. "
        f"Bold: the lowest average at a rate. In brackets: what a client sent that did "
        f"not keep up.{many}"
    )


def _figure(results: Results) -> Any:
    found = rows(results)
    panels = 3 if results.fleets else 2
    figure, (axes,) = subplots(1, panels, 12, 4.4)
    for axis, title, attribute in (
        (axes[0], "average latency by records/s, ms", "steady_avg_ms"),
        (axes[1], "p99 by records/s, ms", "steady_p99_ms"),
    ):
        for name in _names({_name(row): row for row in made} for made in found.values()):
            points = [
                (rate, getattr(row, attribute))
                for rate, made in found.items()
                for row in made
                if _name(row) == name and getattr(row, attribute)
            ]
            _draw(axis, name, points)
        _scales(axis, title, list(found))
    if results.fleets:
        for name in dict.fromkeys((OURS, fleet.setting) for fleet in results.fleets):
            of: list[Fleet] = [fleet for fleet in results.fleets if fleet.setting == name[1]]
            _draw(axes[2], name, [(fleet.producers, fleet.avg_ms) for fleet in of])
        counts = sorted({fleet.producers for fleet in results.fleets})
        axes[2].set_ylim(axes[0].get_ylim())
        _scales(axes[2], f"average by producers of {FLEET_RATE:g} records/s, ms", counts)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def _draw(axis: Any, name: Name, points: Sequence[tuple[float, float]]) -> None:
    client, setting = name
    axis.plot(
        [at for at, _ms in points],
        [ms for _at, ms in points],
        label=f"{client}: {setting}",
        color=_COLORS.get(setting, TEXT) if client == OURS else CLIENT_COLORS.get(client, TEXT),
        linewidth=2.4 if name == (OURS, "default") else 1.3,
        linestyle="-" if client == OURS else "--",
        marker=".",
    )


def _scales(axis: Any, title: str, at: Sequence[float]) -> None:
    axis.set_title(title)
    axis.set_xscale("log")
    axis.set_xticks(at, [f"{value:,g}" for value in at])
    axis.set_xticks([], minor=True)
    axis.set_yscale("log")
    latency_ticks(axis.yaxis, axis.get_ylim())


def _names(by_rate: Iterable[dict[Name, Row]]) -> list[Name]:
    return list(dict.fromkeys(name for found in by_rate for name in found))


def _name(row: Row) -> Name:
    return row.client, row.setting


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |\n"
