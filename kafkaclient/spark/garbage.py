"""Keeps garbage collection cheap in Spark's workers."""

from __future__ import annotations

import gc
import sys

_modules = 0


def freeze_objects() -> None:
    """Exclude all current objects from garbage collection, if modules were imported since the last
    call. Then this call also collects garbage, including frozen objects.

    Spark's daemon makes workers collect garbage after each task (``pyspark.daemon``). Scanning
    everything that PySpark, pandas, PyArrow and this package define takes longer than a small task.
    """
    global _modules  # noqa: PLW0603 - sys.modules is global, too
    if len(sys.modules) > _modules:
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        _modules = len(sys.modules)
