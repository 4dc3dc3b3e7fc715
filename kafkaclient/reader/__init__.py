"""Reads records as columns, by offset and time, without a group (docs/how-to/reader.md)."""

from __future__ import annotations

from kafkaclient.reader.batch import FetchedBatch, FetchedRecord
from kafkaclient.reader.reader import Reader
from kafkaclient.reader.reading import Reading

__all__ = ["FetchedBatch", "FetchedRecord", "Reader", "Reading"]
