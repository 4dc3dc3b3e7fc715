"""Progress of Spark's jobs."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["report_progress"]

_POLL_INTERVAL_S = 0.25


@contextmanager
def report_progress(spark: Any, report: Callable[[int, int], None]) -> Iterator[None]:
    """Call ``report(tasks done, all tasks)`` for the active stages every 0.25 s, on a thread.

    Sessions of Spark Connect do not know their stages, so there are no calls.
    """
    context = getattr(spark, "_sc", None)
    if context is None:
        yield
        return
    tracker = context.statusTracker()
    stopped = threading.Event()

    def follow() -> None:
        while not stopped.wait(_POLL_INTERVAL_S):
            found = map(tracker.getStageInfo, tracker.getActiveStageIds())
            stages = [stage for stage in found if stage is not None]
            if stages:
                report(
                    sum(stage.numCompletedTasks for stage in stages),
                    sum(stage.numTasks for stage in stages),
                )

    thread = threading.Thread(target=follow, name="kafkaclient-spark-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()
