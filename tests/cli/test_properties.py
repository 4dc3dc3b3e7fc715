from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafkaclient.cli.profile_file import comma_pairs, pairs, read_properties
from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("acks=all\nlinger.ms = 5\n", {"acks": "all", "linger.ms": "5"}),
        ("# a comment\n  ! another\n\nacks: 1", {"acks": "1"}),
        ("acks all", {"acks": "all"}),
        ("empty=", {"empty": ""}),
        ("empty", {"empty": ""}),
        ("jaas=a \\\n    b=c;", {"jaas": "a b=c;"}),
        ("path=C\\:\\\\dir\\tx", {"path": "C:\\dir\tx"}),
        ("na\\=me=v", {"na=me": "v"}),
        ("letter=\\u00e9", {"letter": "é"}),
        ("twice=1\ntwice=2", {"twice": "2"}),
        ("last=1\\", {"last": "1"}),
        ("servers=h1:9092,h2:9092", {"servers": "h1:9092,h2:9092"}),
    ],
)
def test_files_are_read_as_java_reads_them(
    text: str, properties: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(text, encoding="utf-8")
    assert read_properties(file) == properties


def test_an_unreadable_file_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.properties"):
        read_properties(tmp_path / "none.properties")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="binary"):
        read_properties(tmp_path / "binary")
    (tmp_path / "escape").write_text("letter=\\uzzzz")
    with pytest.raises(ConfigError, match="escape"):
        read_properties(tmp_path / "escape")


def test_words_are_split_at_the_first_equals_sign() -> None:
    words = ["acks=all", "sasl.jaas.config=X required a=b;"]
    assert pairs(words, "--x") == {"acks": "all", "sasl.jaas.config": "X required a=b;"}


def test_spaces_around_names_and_values() -> None:
    assert pairs([], "--x") == {}
    words = ["replica.fetch.backoff.ms=100", "log.dirs = /a=b"]
    found = {"replica.fetch.backoff.ms": "100", "log.dirs": "/a=b"}
    assert pairs(words, "--x", strip=True) == found


@pytest.mark.parametrize("word", ["acks", "=all", ""])
def test_a_word_without_a_name_and_a_value_is_refused(word: str) -> None:
    with pytest.raises(ConfigError, match="--x takes NAME=VALUE"):
        pairs([word], "--x")


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["a=1", "b=2"], {"a": "1", "b": "2"}),
        (["a=1,b=[2,3],c="], {"a": "1", "b": "2,3", "c": ""}),
        ([], {}),
    ],
)
def test_words_with_several_pairs(words: list[str], found: dict[str, str]) -> None:
    assert comma_pairs(words, "--x") == found


@pytest.mark.parametrize("words", [["a"], ["=1"], ["a=1", "a=2"]])
def test_what_are_no_pairs(words: list[str]) -> None:
    with pytest.raises(ConfigError, match="--x"):
        comma_pairs(words, "--x")
