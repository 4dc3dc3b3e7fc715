"""What garbage collection costs in Spark's workers."""

from __future__ import annotations

import gc
import sys

__all__ = ["freeze_imports"]

_modules = 0


def freeze_imports() -> None:
    """Put aside all that is imported, if there is more than at the last call.

    Spark's daemon has its workers collect garbage after each task (``pyspark.daemon``). To look
    through everything that PySpark, pandas, PyArrow and this package have defined took 20 to 60 ms,
    more than a small task; none of it ever becomes garbage.
    """
    global _modules  # noqa: PLW0603 - as is what it counts
    if len(sys.modules) > _modules:
        gc.collect()
        gc.freeze()
        _modules = len(sys.modules)
