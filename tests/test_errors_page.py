"""docs/reference/errors.md against the code: every error has its row."""

from __future__ import annotations

import re
from pathlib import Path

from kafkaclient import errors
from kafkaclient.broker_errors import BROKER_ERRORS, ErrorCode

PAGE = (Path(__file__).parent.parent / "docs" / "reference" / "errors.md").read_text("utf-8")
CLASSES = {
    name: found
    for name in errors.__all__
    if isinstance(found := getattr(errors, name), type) and issubclass(found, errors.KafkaError)
}


def test_every_error_has_its_row() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", PAGE, re.MULTILINE))
    assert rows.keys() == CLASSES.keys() - {"KafkaError", "KafkaTimeoutError"}
    for name, retriable in rows.items():
        if not retriable.startswith("by "):
            assert (retriable == "yes") is CLASSES[name].retriable, name


def test_codes_have_kafkas_names() -> None:
    names = {code: name for code, (name, *_) in BROKER_ERRORS.items()}
    assert [names[code] for code in ErrorCode if code] == [code.name for code in ErrorCode if code]
