"""Whether brokers were chosen well: what batches took, against what the others' took meanwhile."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

__all__ = ["judged"]


def judged(cells: pa.Table, times: float, least_s: float) -> pa.Table:
    """Per broker and kind of decision: how many batches were judged, what they took in all
    (``total_s``), what those of the other brokers (``others_s``) and of the fastest other broker
    (``best_s``) would have taken, and how many are ``regretted``: took ``times`` what the fastest
    other's took on average, and ``least_s`` seconds more.

    ``cells``: of one run, all of some moments; each row is the batches of one broker and kind of
    decision that took about as long. Where a moment has one broker only, nothing is judged.
    """
    rivals = _rivals(cells)
    compared = cells.join(rivals, ["moment", "broker"], join_type="inner", use_threads=False)
    batches, total_s, others_s, best_s = (
        np.asarray(compared[name]) for name in ("batches", "total_s", "others_s", "best_s")
    )
    took_s = total_s / batches
    regretted = (took_s > times * best_s) & (took_s > best_s + least_s)
    figures = {
        "batches": batches,
        "total_s": total_s,
        "others_s": others_s * batches,
        "best_s": best_s * batches,
        "regretted": regretted * batches,
    }
    keys = {name: compared[name] for name in ("run", "broker", "bound_by")}
    grouped = pa.table(keys | figures).group_by(list(keys), use_threads=False)
    sums = grouped.aggregate([(name, "sum") for name in figures])
    return pa.table(
        {name: sums[name] for name in keys} | {name: sums[f"{name}_sum"] for name in figures}
    )


def _rivals(cells: pa.Table) -> pa.Table:
    """For each broker of a moment that had several: the mean of all others' batches (``others_s``),
    and of the fastest other's (``best_s``)."""
    keys = ["moment", "broker"]
    sums = cells.group_by(keys, use_threads=False).aggregate(
        [("total_s", "sum"), ("batches", "sum")]
    )
    moment, broker, total_s, batches = (np.asarray(column) for column in sums.columns)
    order = np.lexsort((broker, total_s / batches, moment))  # each moment's fastest first
    moment, broker, total_s, batches = (c[order] for c in (moment, broker, total_s, batches))
    first = np.flatnonzero(np.append(True, np.diff(moment) != 0)[: len(moment)])
    size = np.diff(np.append(first, len(moment)))
    several = np.repeat(size, size) > 1

    def of_its_moment(values: Any) -> Any:
        return np.repeat(values, size)[several]

    fastest = of_its_moment(first)
    rival = np.where(fastest == np.flatnonzero(several), fastest + 1, fastest)
    others_s = of_its_moment(np.add.reduceat(total_s, first)) - total_s[several]
    others = of_its_moment(np.add.reduceat(batches, first)) - batches[several]
    return pa.table(
        {
            "moment": moment[several],
            "broker": broker[several],
            "others_s": others_s / others,
            "best_s": total_s[rival] / batches[rival],
        }
    )
