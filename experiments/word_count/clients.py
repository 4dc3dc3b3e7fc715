"""The stream processors that count: how each is started, and how its changelog is read."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.word_count.plan import FAUST, FAUST_ROCKSDB, KAFKA_STREAMS, OURS, QUIX
from kafkaclient.errors import KafkaError
from kafkaclient.testing.jars import JarCache, parse_lock
from kafkaclient.testing.jvm import find_java

if TYPE_CHECKING:
    from collections.abc import Callable

    from experiments.word_count.plan import Plan

__all__ = ["CLIENTS", "Client", "Command", "command"]

_HERE = Path(__file__).parent
_HEAP_MB = 1024


@dataclass(frozen=True, slots=True)
class Command:
    """A process and the line that it reads from stdin; an empty line for none."""

    words: tuple[str, ...]
    stdin: str = ""


@dataclass(frozen=True, slots=True)
class Client:
    """What the topics of a stream processor are called, and what is in its changelog."""

    exactly_once: bool
    words: Callable[[str, str], bool]
    """Whether the topic (first) of the application (second) has a record for each word."""
    changelog: Callable[[str, str], bool]
    """Whether the topic (first) of the application (second) has the changes of the counts."""
    decode: Callable[[bytes, bytes], tuple[str, int]]
    """The word and its count in a record of the changelog."""


def _of_text(key: bytes, value: bytes) -> tuple[str, int]:
    return key.decode(), int(value)


def _of_json(key: bytes, value: bytes) -> tuple[str, int]:
    return json.loads(key), int(value)


def _of_quix(key: bytes, value: bytes) -> tuple[str, int]:
    # The record's key in JSON, a separator and the key in the state, "count".
    return json.loads(key.rpartition(b"|")[0]), int(value)


def _of_java(key: bytes, value: bytes) -> tuple[str, int]:
    return key.decode(), int.from_bytes(value, "big")


def _is_words(name: str, application: str) -> bool:
    return name in (f"{application}-words", f"{application}-words-repartition")


def _is_changelog(name: str, application: str) -> bool:
    return name == f"{application}-counts-changelog"


def _is_quix_words(name: str, application: str) -> bool:
    return name.startswith(f"repartition__{application}--")


def _is_quix_changelog(name: str, application: str) -> bool:
    return name.startswith(f"changelog__{application}--")


CLIENTS = {
    OURS: Client(exactly_once=True, words=_is_words, changelog=_is_changelog, decode=_of_text),
    QUIX: Client(
        exactly_once=True,
        words=_is_quix_words,
        changelog=_is_quix_changelog,
        decode=_of_quix,
    ),
    FAUST: Client(exactly_once=False, words=_is_words, changelog=_is_changelog, decode=_of_json),
    FAUST_ROCKSDB: Client(
        exactly_once=False, words=_is_words, changelog=_is_changelog, decode=_of_json
    ),
    KAFKA_STREAMS: Client(
        exactly_once=True, words=_is_words, changelog=_is_changelog, decode=_of_java
    ),
}


async def command(name: str, plan: Plan, folder: Path, options: dict[str, Any]) -> Command:
    """How to start the client ``name`` with the ``options`` of its application.

    Compiles Kafka Streams' program into ``folder``. Raises KafkaError if that fails.
    """
    line = json.dumps(
        {
            **options,
            "partitions": plan.partitions,
            "store": "rocksdb://" if name == FAUST_ROCKSDB else "memory://",
        }
    )
    match name:
        case "quixstreams":
            return Command((str(plan.quix_python), str(_HERE / "quix_worker.py")), line)
        case "faust" | "faust-rocksdb":
            return Command((str(plan.faust_python), str(_HERE / "faust_worker.py")), line)
        case "kafka-streams":
            return Command(await _java(folder, options))
    return Command((sys.executable, "-m", "experiments.word_count.ours"), line)


async def _java(folder: Path, options: dict[str, Any]) -> tuple[str, ...]:
    lock = (_HERE / "kafka-streams-4.3.1.lock").read_text("utf-8")
    *jars, compiler = await asyncio.to_thread(JarCache().ensure, parse_lock(lock))
    java = str((await asyncio.to_thread(find_java)).path)
    classes, class_path = folder / "classes", ":".join(map(str, jars))
    source = str(_HERE / "WordCount.java")
    compiling = await asyncio.create_subprocess_exec(
        *(java, "-jar", str(compiler), "-17", "-proc:none", "-cp", class_path),
        *("-d", str(classes), source),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    told, _ = await compiling.communicate()
    if compiling.returncode:
        raise KafkaError(f"WordCount.java cannot be compiled: {told.decode('utf-8', 'replace')}")
    return (
        *(java, f"-Xmx{_HEAP_MB}m", "-cp", f"{classes}:{class_path}", "WordCount"),
        *(options["bootstrap_servers"], options["application_id"], options["topic"]),
        options["state_dir"],
    )
