"""Records a row for each batch in Parquet files or a Kafka topic (docs/how-to/telemetry.md).

Importing this package raises :class:`~kafkaclient.errors.ConfigError` without pyarrow.
"""

from __future__ import annotations

from kafkaclient.errors import ConfigError

try:
    from kafkaclient.telemetry.reading import TelemetryFile, files, open_root, read, started_at
except ImportError as error:
    raise ConfigError(
        "telemetry is written with pyarrow, which cannot be imported "
        f"({error}): pip install 'kafkaclient[telemetry]'"
    ) from error

from kafkaclient.telemetry.format import (
    EXCLUSIONS_KEY,
    SAMPLE_KEY,
    SCHEMA,
    SCHEMA_VERSION,
    STARTED_KEY,
    VERSION_KEY,
    decode,
)

__all__ = [
    "EXCLUSIONS_KEY",
    "SAMPLE_KEY",
    "SCHEMA",
    "SCHEMA_VERSION",
    "STARTED_KEY",
    "VERSION_KEY",
    "TelemetryFile",
    "decode",
    "files",
    "open_root",
    "read",
    "started_at",
]
