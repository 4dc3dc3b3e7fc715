"""What garbage collection costs in Spark's workers."""

from __future__ import annotations

import gc
import sys

__all__ = ["freeze_imports"]

_modules = 0


def freeze_imports() -> None:
    """Put aside what is there, mostly what has been imported, if more is than at the last call.

    Spark's daemon has its workers collect garbage after each task (``pyspark.daemon``). To look
    through everything that PySpark, pandas, PyArrow and this package have defined took 20 to 60 ms,
    more than a small task. What was put aside and has become garbage since goes at the next time.
    """
    global _modules  # noqa: PLW0603 - as is what it counts
    if len(sys.modules) > _modules:
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        _modules = len(sys.modules)
