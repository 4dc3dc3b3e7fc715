"""Judges choices of brokers: compares batches that were sent to different brokers at one moment."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa


def judge_decisions(cells: pa.Table, times: float, least_s: float) -> pa.Table:
    """Figures per broker, kind of decision, and whether the producer chose the partition.

    They are the number of judged batches, the time they took (``total_s``), the time at the mean of
    the other brokers (``others_s``) and of the fastest other broker (``best_s``), and the number of
    ``regretted`` batches. A batch is regretted if it took more than ``times`` the mean of the
    fastest other broker, and more than ``least_s`` seconds longer.

    ``cells``: all batches of some moments of one run. A row has the batches of one broker and kind
    of decision with about the same duration. Moments with only one broker are not judged. Rivals
    are all batches, also those whose partition the producer did not choose.
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
    keys = {name: compared[name] for name in ("run", "broker", "bound_by", "is_chosen")}
    grouped = pa.table(keys | figures).group_by(list(keys), use_threads=False)
    sums = grouped.aggregate([(name, "sum") for name in figures])
    return sums.rename_columns([*keys, *figures])


def _rivals(cells: pa.Table) -> pa.Table:
    """For each broker of a moment with several: the mean duration of all other brokers' batches
    (``others_s``), and of the fastest other broker's batches (``best_s``)."""
    keys = ["moment", "broker"]
    sums = cells.group_by(keys, use_threads=False).aggregate(
        [("total_s", "sum"), ("batches", "sum")]
    )
    moment, broker, total_s, batches = (np.asarray(column) for column in sums.columns)
    order = np.lexsort((broker, total_s / batches, moment))  # by moment, fastest broker first
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
