"""The counts in changelogs of different formats."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.word_count.clients import CLIENTS, command
from experiments.word_count.counts import Counts, Wrong
from experiments.word_count.plan import FAUST, FAUST_ROCKSDB, KAFKA_STREAMS, OURS, QUIX, Plan


@pytest.mark.parametrize(
    ("client", "key", "value"),
    [
        (OURS, b"word7", b"12"),
        (QUIX, b'"word7"|"count"', b"12"),
        (FAUST, b'"word7"', b"12"),
        (KAFKA_STREAMS, b"word7", (12).to_bytes(8, "big")),
    ],
)
def test_a_word_and_its_count(client: str, key: bytes, value: bytes) -> None:
    assert CLIENTS[client].decode(key, value) == ("word7", 12)


@pytest.mark.parametrize(
    ("client", "words", "changelog"),
    [
        (OURS, "app-words-repartition", "app-counts-changelog"),
        (QUIX, "repartition__app--lines--word", "changelog__app--repartition.lines--default"),
        (FAUST, "app-words", "app-counts-changelog"),
        (KAFKA_STREAMS, "app-words-repartition", "app-counts-changelog"),
    ],
)
def test_the_topics_of_an_application(client: str, words: str, changelog: str) -> None:
    known = CLIENTS[client]
    assert known.words(words, "app")
    assert known.changelog(changelog, "app")
    for other in ("lines", words.replace("app", "other"), changelog.replace("app", "other")):
        assert not known.words(other, "app")
        assert not known.changelog(other, "app")


def test_the_last_count_of_a_word_counts() -> None:
    counts = Counts("localhost:9092", CLIENTS[OURS].decode)
    for key, value in ((b"a", b"1"), (b"b", b"1"), (b"a", b"2")):
        counts.add(key, value)
    assert (counts.last, counts.changes) == ({"a": 2, "b": 1}, 3)
    assert counts.wrong({"a": 2, "b": 1}) == Wrong(0, 0, 0, ())
    assert counts.wrong({"a": 1, "b": 3, "c": 4}) == Wrong(
        3, 6, 1, ("a: 2 instead of 1", "b: 1 instead of 3", "c: 0 instead of 4")
    )


async def test_commands_of_the_python_clients(tmp_path: Path) -> None:
    plan = Plan(quix_python=Path("q"), faust_python=Path("f"))
    options = {"application_id": "app"}
    for client, python, store in (
        (QUIX, "q", "memory://"),
        (FAUST, "f", "memory://"),
        (FAUST_ROCKSDB, "f", "rocksdb://"),
    ):
        made = await command(client, plan, tmp_path, options)
        assert made.words[0] == python
        assert made.words[1].endswith("_worker.py")
        assert f'"store": "{store}"' in made.stdin
        assert '"application_id": "app"' in made.stdin
