"""The benchmark as SVG, in the manner of the documentation's other pictures."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from benchmarks.produce.entries import AIO, DROP_IN, KAFKA_PYTHON, RAW
from benchmarks.produce.table import number
from benchmarks.produce.targets import medians
from experiments.slow_broker.figures import CLIENT_COLORS
from experiments.slow_broker.pictures import BAR_INCHES, STYLE, TEXT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["draw"]

_COLORS = CLIENT_COLORS | {
    AIO: "#a46ede",
    DROP_IN: "#5aa9e6",
    KAFKA_PYTHON: "#14a38b",
    RAW: "#8d99ae",
}
_PANELS = (("records/s", "records_per_s"), ("client's CPU per record, µs", "cpu_us_per_record"))
_DRAWN = ("send_nowait", "send_many", "send_arrow", "the same load", "produce", "perf tool", "send")
"""The ways to send values of 100 bytes without key."""


def draw(path: Path, runs: Sequence[Mapping[str, Any]]) -> bool:
    """Bars of throughput and CPU per entry; False when no run has any."""
    found = {
        entry: values
        for entry, values in medians(runs).items()
        if values.get("records_per_s") and entry.partition(": ")[2] in _DRAWN
    }
    if not found:
        return False
    matplotlib = import_module("matplotlib")
    matplotlib.use("svg")
    with matplotlib.rc_context(STYLE):
        figure = import_module("matplotlib.figure").Figure(
            figsize=(11, 0.9 + BAR_INCHES * len(found))
        )
        axes = figure.subplots(1, len(_PANELS), squeeze=False)[0]
        for axis, (title, name) in zip(axes, _PANELS, strict=True):
            _bars(axis, title, {entry: values[name] for entry, values in found.items()})
        axes[0].set_yticks(range(len(found)), list(found))
        figure.savefig(path, transparent=True, metadata={"Date": None, "Creator": None})
    return True


def _bars(axis: Any, title: str, values: Mapping[str, float]) -> None:
    bars = axis.barh(
        range(len(values)),
        list(values.values()),
        color=[_COLORS.get(entry.partition(":")[0], TEXT) for entry in values],
        height=0.72,
    )
    labels = [number(value) for value in values.values()]
    axis.bar_label(bars, labels, padding=3, fontsize=8, color=TEXT)
    axis.set_title(title)
    axis.set_xlim(0, 1.2 * max(values.values()))
    axis.set_xticks([])
    axis.margins(y=0.01)
    axis.grid(visible=False, axis="y")
    axis.set_yticks(range(len(values)), [])
    axis.invert_yaxis()
