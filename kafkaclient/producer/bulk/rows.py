"""Records in bulk: many at a time from where they are, into the open batches of their topic.

What the taps of ``fastpath.py`` do for one record, without a handle for each. Compiled
(``_bulk.pyx``, ``_columns.pyx``), or the pure-Python twins (``_bulk_py.py``, ``_columns_py.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkaclient.twins import load_twin

if TYPE_CHECKING:
    from kafkaclient.producer.bulk._arrow_rows_py import Blobs, Columns, HeaderLists, Numbers
    from kafkaclient.producer.bulk._rows_py import Rows, Values
else:
    _twin, _ = load_twin("kafkaclient.producer.bulk._rows")
    Rows, Values = _twin.Rows, _twin.Values
    _twin, _ = load_twin("kafkaclient.producer.bulk._arrow_rows")
    Blobs, Columns, HeaderLists, Numbers = (
        _twin.Blobs,
        _twin.Columns,
        _twin.HeaderLists,
        _twin.Numbers,
    )

__all__ = ["Blobs", "Columns", "HeaderLists", "Numbers", "Rows", "Values"]
