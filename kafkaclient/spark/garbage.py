"""Keeps garbage collection cheap in Spark's workers."""

from __future__ import annotations

import gc
import sys

_modules = 0


def freeze_imports() -> None:
    """Exclude all objects from garbage collection, if there are new imports since the last call.

    Spark's daemon makes workers collect garbage after each task (``pyspark.daemon``). Scanning
    everything that PySpark, pandas, PyArrow and this package define took 20 to 60 ms, longer than a
    small task. The next call collects frozen objects that have become garbage.
    """
    global _modules  # noqa: PLW0603 - sys.modules is global, too
    if len(sys.modules) > _modules:
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        _modules = len(sys.modules)
