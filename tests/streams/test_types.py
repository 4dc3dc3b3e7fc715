"""Type checkers see wrong keys, values and parameters of processors."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

RIGHT = """
    import asyncio
    from typing import Optional

    from kafkaclient.streams import (
        Emit, KeyValueStore, Record, Serde, Store, StreamsApp, Topic, TopologyTest,
    )

    app = StreamsApp("localhost:9092", application_id="words")
    counts = Store("counts", key=str, value=int)
    words = Topic("words", key=str, value=str)


    @app.processor("lines", value=str)
    async def split(record: Record[bytes | None, str], emit: Emit) -> None:
        for word in record.value.split():
            await emit(words, word, key=word)
            await emit("others", 5)


    @app.processor(words, store=counts)
    async def count(record: Record[str, str], store: KeyValueStore[str, int], emit: Emit) -> None:
        store[record.key] = store.get(record.key, 0) + 1
        if "the" in store:
            del store["the"]
        for word, number in store.items("a", "b"):
            await emit(words, word * number, key=word)


    @app.processor("many", value=list[int], stores=[counts, Store("raw")])
    async def many(
        record: Record[bytes | None, list[int]],
        first: KeyValueStore[str, int],
        second: KeyValueStore[bytes, bytes],
        emit: Emit,
    ) -> None: ...


    @app.processor(Topic("plain", value=str))
    async def plain(record: Record[bytes | None, str], emit: Emit) -> None:
        await emit(Topic("raw"), None)


    @app.processor("own", value=Serde(str.encode, bytes.decode))
    async def own(record: Record[bytes | None, str], emit: Emit) -> None: ...


    @app.processor(Topic("numbers", key=str, value=int), words, store=counts)
    async def both(
        record: Record[str, int | str], store: KeyValueStore[str, int], emit: Emit
    ) -> None: ...


    @app.processor("optional", key=str, value=Optional[int])
    async def optional(record: Record[str, int | None], emit: Emit) -> None:
        await emit(Topic[str | None, str]("o", key=Optional[str], value=str), "x")


    @app.processor(Topic("loose", value=Optional[int]))
    async def loose(record: Record[bytes | None, int | None], emit: Emit) -> None: ...


    async def called(record: Record[bytes | None, str], emit: Emit) -> None:
        await asyncio.create_task(split(record, emit))


    def test_words() -> None:
        with TopologyTest(app) as test:
            test.send(words, "a", "b")
            test.send("lines", "a")
            text: list[str] = [record.value for record in test.records(words)]
            for record in test.records("lines"):
                print(record.value, text)
"""

WRONG = [
    ('store[b"the"] = 1', 'Invalid index type "bytes"'),
    ('store["the"] = "1"', "Incompatible types in assignment"),
    ('store["the"].split()', '"int" has no attribute "split"'),
    ('record.value.get("the")', '"str" has no attribute "get"'),
    ('await emit(words, 5, "a")', 'of "Emit"'),
    ('await emit(words, "a", 5)', 'of "Emit"'),
    ('await emit(words, "a")', 'expected "Topic[str | None, str]"'),
    ("TopologyTest(app).send(words, 5)", 'of "TopologyTest"'),
    ('TopologyTest(app).send(words, "a", 5)', 'of "TopologyTest"'),
]


def errors_of(path: Path) -> str:
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


@pytest.mark.timeout(300)  # without a cache mypy takes long
def test_mypy_sees_wrong_types(tmp_path: Path) -> None:
    right = textwrap.dedent(RIGHT)
    head = right.partition('    if "the" in store:')[0]
    wrong = head + "".join(f"    {line}\n" for line, _ in WRONG)
    wrong += textwrap.dedent(
        """
        @app.processor(words, store=counts)
        async def other(r: Record[str, str], s: KeyValueStore[bytes, int], e: Emit) -> None: ...

        @app.processor("x", value=int)
        async def another(record: Record[bytes | None, str], emit: Emit) -> None: ...

        @app.processor("forgotten")
        async def forgotten(record: Record[str, str], emit: Emit) -> None: ...

        @app.processor("forgotten value", key=str, store=counts)
        async def f(r: Record[str, str], s: KeyValueStore[str, int], e: Emit) -> None: ...

        @app.processor("bytes", store="bytes")
        async def b(r: Record[str, str], s: KeyValueStore[str, str], e: Emit) -> None: ...

        @app.processor(words, stores=[counts])
        async def s(r: Record[str, int], s: KeyValueStore[str, int], e: Emit) -> None: ...

        @app.processor(words, Topic("numbers", key=str, value=int))
        async def two(record: Record[str, str], emit: Emit) -> None: ...

        @app.processor(words)
        def not_async(record: Record[str, str], emit: Emit) -> None: ...
        """
    )
    (tmp_path / "right.py").write_text(right)
    (tmp_path / "wrong.py").write_text(wrong)
    assert errors_of(tmp_path / "right.py") == ""
    found = errors_of(tmp_path / "wrong.py").splitlines()
    expected = [message for _, message in WRONG] + ["Argument 1 has incompatible type"] * 8
    assert len(found) == len(expected), found
    for line, message in zip(found, expected, strict=True):
        assert message in line
