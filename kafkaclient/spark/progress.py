"""How far Spark is with what it was asked for."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["followed"]

_EVERY_S = 0.25


@contextmanager
def followed(spark: Any, tell: Callable[[int, int], None]) -> Iterator[None]:
    """Have ``tell`` hear, on a thread, of the tasks done and all tasks of the stages under way.

    Spark Connect's sessions do not know of stages: nothing is told of those.
    """
    context = getattr(spark, "_sc", None)
    if context is None:
        yield
        return
    tracker = context.statusTracker()
    over = threading.Event()

    def follow() -> None:
        while not over.wait(_EVERY_S):
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            known = [stage for stage in stages if stage is not None]
            if known:
                tell(
                    sum(stage.numCompletedTasks for stage in known),
                    sum(stage.numTasks for stage in known),
                )

    thread = threading.Thread(target=follow, name="kafkaclient-spark-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
