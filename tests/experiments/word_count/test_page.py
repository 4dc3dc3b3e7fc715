"""The programs of docs/concepts/stream-processors.md are those of the experiment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkaclient.streams import TopologyTest
from tests.code_blocks import ROOT, parses, runs

if TYPE_CHECKING:
    from tests.code_blocks import Block

COUNTED = ROOT / "experiments" / "word_count"
HINTS = {
    ": Any": "",
    ": Record[bytes | None, str]": "",
    ": Record[str, str]": "",
    ": KeyValueStore[str, int]": "",
    ": Emit": "",
    " -> None": "",
    "  # type: ignore[untyped-decorator]": "",
}


def not_in_program(block: Block, program: str, names: dict[str, str]) -> list[str]:
    """The lines of the block that the program has not. ``names`` are what the page calls
    differently: the page's text -> the program's."""

    def plain(text: str) -> str:
        for hint, nothing in HINTS.items():
            text = text.replace(hint, nothing)
        return text.strip().rstrip(";")

    known = {plain(line) for line in (COUNTED / program).read_text("utf-8").splitlines()}
    lines = block.text(names).splitlines()
    return [line for line in map(plain, lines) if line and line not in known]


@runs("docs/concepts/stream-processors.md", having="StreamsApp(")
def test_our_program(block: Block) -> None:
    names = {
        '"localhost:9092"': 'options["bootstrap_servers"]',
        'application_id="words"': 'application_id=options["application_id"]',
        '"/var/lib/words"': 'options["state_dir"]',
        '"lines"': 'options["topic"]',
    }
    assert not not_in_program(block, "ours.py", names)
    with TopologyTest(block.run()["app"]) as test:
        test.send("lines", "to be or not to be")
        assert dict(test.store("counts").items()) == {"to": 2, "be": 2, "or": 1, "not": 1}


@parses("docs/concepts/stream-processors.md", having="faust.App(")
def test_fausts_program(block: Block) -> None:
    names = {
        'faust.App("words", broker="kafka://localhost:9092")': "faust.App(",
        '"lines"': 'options["topic"]',
        '    "words",': '    f"{application}-words",',
        "partitions=4": "partitions=partitions",
    }
    assert not not_in_program(block, "faust_worker.py", names)


@parses("docs/concepts/stream-processors.md", having="quix.Application(")
def test_quix_program(block: Block) -> None:
    names = {
        '"localhost:9092"': 'options["bootstrap_servers"]',
        'consumer_group="words"': 'consumer_group=options["application_id"]',
        '"lines"': 'options["topic"]',
    }
    assert not not_in_program(block, "quix_worker.py", names)


@parses("docs/concepts/stream-processors.md", "java")
def test_kafka_streams_program(block: Block) -> None:
    assert not not_in_program(block, "WordCount.java", {'"lines"': "args[2]"})
