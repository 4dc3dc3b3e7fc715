"""Reads records without a consumer group, by offset and time, as columns (docs/reader.md)."""

from __future__ import annotations

from kafkaclient.reader.batch import FetchedBatch, FetchedRecord
from kafkaclient.reader.reader import Reader
from kafkaclient.reader.reading import Reading

__all__ = ["FetchedBatch", "FetchedRecord", "Reader", "Reading"]
