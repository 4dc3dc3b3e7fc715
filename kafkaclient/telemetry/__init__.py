"""Facts about every batch, in Parquet files. The package needs pyarrow (extra ``telemetry``).

Importing the package without pyarrow raises :class:`~kafkaclient.errors.ConfigError`.
docs/telemetry.md describes the columns.
"""

from __future__ import annotations

from kafkaclient.telemetry.parquet import SCHEMA, BatchRow, read, started_at
from kafkaclient.telemetry.recorder import Recorder

__all__ = ["SCHEMA", "BatchRow", "Recorder", "read", "started_at"]
