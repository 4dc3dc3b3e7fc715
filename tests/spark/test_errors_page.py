"""docs/reference/spark.md against the code: every error that can end a task has its row."""

from __future__ import annotations

import re
from pathlib import Path

from kafkaclient import errors

_PAGE = Path(__file__).parents[2] / "docs" / "reference" / "spark.md"
# Roots, whose subclasses have rows, and errors of what no task of Spark uses.
_ROOTS = {"KafkaError", "KafkaTimeoutError"}
_NEVER = {
    "groups": {"ConsumerStateError", "NoOffsetError"},
    "deserializers": {"DeserializationError", "RegistryUnavailableError"},
    "streams": {
        *("ProcessingError", "StateStoreError", "StoreUnavailableError"),
        *("StreamsError", "TaskAssignmentError"),
    },
    "reassignments and limits of partitions": {"PartitionLimitRaceError", "ReassignmentError"},
    "serializers and partitioners in Python": {"PartitionerError", "SerializationError"},
    "flush with a time limit": {"FlushTimeoutError"},
    "the ledger is created unless it exists": {"TopicExistsError"},
    "clients of the source are started, and closed after their last call": {
        *("AdminStateError", "ProducerClosedError", "ProducerStateError", "ReaderStateError"),
    },
}


def test_every_error_that_can_end_a_task_has_its_row() -> None:
    table = _PAGE.read_text("utf-8").partition("\n## Which classes of errors end a task?\n")[2]
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| ([^|]+) \| ([^|]+) \|$", table, re.MULTILINE)
    named = [name for names, *_ in rows for name in re.findall(r"\w+", names)]
    never = {name for names in _NEVER.values() for name in names}
    classes = {
        name
        for name in errors.__all__
        if isinstance(found := getattr(errors, name), type) and issubclass(found, errors.KafkaError)
    }
    assert len(named) == len(set(named))
    assert set(named) == classes - never - _ROOTS
    assert never <= classes
