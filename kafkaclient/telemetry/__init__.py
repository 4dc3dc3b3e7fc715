"""Facts about every batch, kept as Parquet files from which all plots are made.

Needs pyarrow (the extra ``kafkaclient[telemetry]``): importing this package without it raises
:class:`~kafkaclient.errors.ConfigError`. docs/telemetry.md describes the columns.
"""

from __future__ import annotations

from kafkaclient.telemetry.parquet import SCHEMA, read, started_at
from kafkaclient.telemetry.recorder import Recorder
from kafkaclient.telemetry.row import BatchRow

__all__ = ["SCHEMA", "BatchRow", "Recorder", "read", "started_at"]
