"""Records a row for each batch in Parquet files (docs/how-to/telemetry.md).

Importing this package raises :class:`~kafkaclient.errors.ConfigError` without pyarrow.
"""

from __future__ import annotations

from kafkaclient.errors import ConfigError

try:
    from kafkaclient.telemetry.parquet import read, started_at
except ImportError as error:
    raise ConfigError(
        "telemetry is written with pyarrow, which cannot be imported "
        f"({error}): pip install 'kafkaclient[telemetry]'"
    ) from error

from kafkaclient.telemetry.format import SAMPLE, SCHEMA_VERSION, STARTED, VERSION, decode
from kafkaclient.telemetry.recorder import Recorder
from kafkaclient.telemetry.rows import SCHEMA, BatchRow

__all__ = [
    "SAMPLE",
    "SCHEMA",
    "SCHEMA_VERSION",
    "STARTED",
    "VERSION",
    "BatchRow",
    "Recorder",
    "decode",
    "read",
    "started_at",
]
