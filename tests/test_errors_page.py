"""docs/reference/errors.md against the code: every error and every code, and its row."""

from __future__ import annotations

import re
from pathlib import Path

from kafkaclient import errors
from kafkaclient.broker_errors import BROKER_ERRORS
from kafkaclient.producer.sender.error_actions import (
    AMBIGUOUS_CODES,
    REFRESH_CODES,
    ErrorAction,
    action_for,
)

PAGE = (Path(__file__).parent.parent / "docs" / "reference" / "errors.md").read_text("utf-8")
CLASSES = {
    name: found
    for name in errors.__all__
    if isinstance(found := getattr(errors, name), type) and issubclass(found, errors.KafkaError)
}
WORDS = {
    ErrorAction.DONE: "done",
    ErrorAction.RETRY: "sent again",
    ErrorAction.SPLIT: "split",
    ErrorAction.RESEQUENCE: "sent again, with a new epoch",
    ErrorAction.FAIL: "fails",
    ErrorAction.FATAL: "the producer ends",
}


def test_every_error_has_its_row() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", PAGE, re.MULTILINE))
    assert rows.keys() == CLASSES.keys() - {"KafkaError", "KafkaTimeoutError"}
    for name, retriable in rows.items():
        if not retriable.startswith("by "):
            assert (retriable == "yes") is CLASSES[name].retriable, name


def test_every_code_does_what_its_row_says() -> None:
    rows = re.findall(r"^\| (-?\d+) \| (\w+) \| ([^|]+) \| (yes|no) \|$", PAGE, re.MULTILINE)
    for code, name, then, in_log in rows:
        assert BROKER_ERRORS[int(code)][0] == name
        assert then.startswith(WORDS[action_for(int(code))]), name
        assert (in_log == "yes") is (int(code) in AMBIGUOUS_CODES), name
    told = {int(code) for code, *_ in rows}
    assert told >= AMBIGUOUS_CODES | REFRESH_CODES
    for code in BROKER_ERRORS.keys() - told:
        assert action_for(code) in (ErrorAction.FAIL, ErrorAction.RETRY), code
