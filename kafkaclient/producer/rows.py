"""Records in bulk: many at a time from where they are, into the open batches of their topic.

What the taps of ``fastpath.py`` do for one record, without a handle for each. Compiled
(``_bulk.pyx``, ``_columns.pyx``), or the pure-Python twins (``_bulk_py.py``, ``_columns_py.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkaclient.twins import load_twin

if TYPE_CHECKING:
    from kafkaclient.producer._bulk_py import Rows, Run, Values
    from kafkaclient.producer._columns_py import Blobs, Columns, HeaderLists, Numbers
else:
    _twin, _ = load_twin("kafkaclient.producer._bulk")
    Rows, Values = _twin.Rows, _twin.Values
    _twin, _ = load_twin("kafkaclient.producer._columns")
    Blobs, Columns, HeaderLists, Numbers = (
        _twin.Blobs,
        _twin.Columns,
        _twin.HeaderLists,
        _twin.Numbers,
    )
    Run = tuple

__all__ = ["Blobs", "Columns", "HeaderLists", "Numbers", "Rows", "Run", "Values"]
