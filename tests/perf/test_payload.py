from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import pytest

from kafkaclient.perf.traffic import (
    file_payloads,
    monotonic_payloads,
    random_payloads,
    read_payloads,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("size", [1, 100, 1024 * 1024])
def test_random_payloads_are_capital_letters_of_the_size(size: int) -> None:
    for key, value in islice(random_payloads(size), 5):
        assert key is None
        assert len(value) == size
        assert value.isalpha()
        assert value.isupper()


def test_random_payloads_are_the_same_in_every_run_and_differ_from_each_other() -> None:
    values = [value for _key, value in islice(random_payloads(100), 1000)]
    assert values == [value for _key, value in islice(random_payloads(100), 1000)]
    assert len(set(values)) == 1000


def test_monotonic_payloads_are_the_numbers() -> None:
    assert list(islice(monotonic_payloads(), 3)) == [(None, b"0"), (None, b"1"), (None, b"2")]


@pytest.mark.parametrize(
    ("text", "delimiter", "payloads"),
    [
        ("a\nb\n", "\n", [b"a", b"b"]),
        ("a\n\nb", "\n", [b"a", b"", b"b"]),
        ("a;b", ";", [b"a", b"b"]),
        ("é", "\n", ["é".encode()]),
        ("", "\n", []),
    ],
)
def test_payload_files_are_split_at_the_delimiter(
    tmp_path: Path, text: str, delimiter: str, payloads: list[bytes]
) -> None:
    path = tmp_path / "payloads"
    path.write_text(text, encoding="utf-8")
    assert read_payloads(path, delimiter) == payloads


def test_file_payloads_are_drawn_from_all() -> None:
    drawn = {value for _key, value in islice(file_payloads([b"a", b"b", b"c"]), 100)}
    assert drawn == {b"a", b"b", b"c"}
