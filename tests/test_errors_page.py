"""Errors: each has its row in docs/reference/errors.md, and messages that others continue."""

from __future__ import annotations

import ast
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


def test_no_message_ends_with_a_full_stop() -> None:
    """Callers continue it: "...; 3 records of the call were handed over"."""
    seen = 0
    for path in Path(errors.__file__).parent.rglob("*.py"):
        if {"testing", "aiokafka"} & {*path.parts}:  # messages of brokers and of aiokafka
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in CLASSES
                and node.args
            ):
                first = node.args[0]
                text = first.values[-1] if isinstance(first, ast.JoinedStr) else first
                if isinstance(text, ast.Constant) and isinstance(text.value, str):
                    ends = text.value.removesuffix("...")
                    assert not ends.endswith("."), f"{path}:{node.lineno}"
                    seen += 1
    assert seen > 100
