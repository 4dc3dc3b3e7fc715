"""Processors, subtopologies, names of tasks and topics, and invalid declarations and options."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, TypeVar

import pytest

from kafkaclient.errors import ConfigError, StreamsError
from kafkaclient.streams import (
    DeadLetter,
    RepartitionTopic,
    Serde,
    Store,
    StreamsApp,
    TaskId,
    Topic,
)
from kafkaclient.streams.config import StreamsConfig
from kafkaclient.streams.topology import Processor, Topology
from kafkaclient.types import TopicPartition


async def nothing(record: object, *others: object) -> None:
    """Nothing is processed here."""


async def emits_words(record: object, emit: Any) -> None:
    async def inner() -> None:
        await emit("words")

    await inner()


def processor(*topics: str, stores: tuple[str, ...] = (), process: Any = nothing) -> Processor:
    declared = tuple(map(Topic, topics))
    return Processor(
        topics=declared,
        by_name=frozenset(topics),
        stores=tuple(map(Store, stores)),
        process=process,
    )


def topology(*processors: Processor) -> Topology:
    return functools.reduce(Topology.with_processor, processors, Topology("app"))


def app(**options: Any) -> StreamsApp:
    return StreamsApp("localhost:1", **{"application_id": "app", **options})


def test_tasks_and_topics() -> None:
    made = topology(processor("a", stores=("x",)), processor("b", stores=("y", "z")))
    assert made.tasks({"a": 2, "b": 1}) == [TaskId(0, 0), TaskId(0, 1), TaskId(1, 0)]
    assert made.sources(TaskId(1, 0)) == (TopicPartition("b", 0),)
    assert made.changelogs(TaskId(1, 3)) == (
        TopicPartition("app-y-changelog", 3),
        TopicPartition("app-z-changelog", 3),
    )


def test_processors_with_common_stores_are_one_subtopology() -> None:
    made = topology(
        processor("a", stores=("x",)),
        processor("b"),
        processor("c", stores=("y",)),
        processor("d", stores=("y", "x")),
    )
    assert [each.topics for each in made.subtopologies] == [["a", "c", "d"], ["b"]]
    assert [store.name for store in made.subtopologies[0].stores] == ["x", "y"]
    assert [made.is_stateful(TaskId(number, 0)) for number in (0, 1)] == [True, False]
    counts = {"a": 2, "c": 2, "d": 2, "b": 1}
    made.check_partitions(counts)
    with pytest.raises(StreamsError, match=r"of store x, y have different .*c has 2, d has 3"):
        made.check_partitions(counts | {"d": 3})


def test_stateless_tasks_read_the_partitions_that_exist() -> None:
    made = topology(processor("a", "b"))
    counts = {"a": 1, "b": 2}
    made.check_partitions(counts)
    assert made.tasks(counts) == [TaskId(0, 0), TaskId(0, 1)]
    assert made.sources(TaskId(0, 1), counts) == (TopicPartition("b", 1),)


def test_missing_inputs_that_processors_emit_to_are_made() -> None:
    made = topology(
        processor("lines", "more", process=emits_words), processor("words", stores=("s",))
    )
    assert made.inferred_repartition_topics({"lines", "more"}) == {"words"}
    assert made.inferred_repartition_topics({"lines", "more", "words"}) == set()
    made_before = {"lines", "more", "app-words-repartition"}
    assert made.inferred_repartition_topics(made_before) == {"words"}
    with pytest.raises(
        StreamsError, match=r"topic words exists, and so does app-words-repartition"
    ):
        made.inferred_repartition_topics({*made_before, "words"})
    declared = [Processor(topics=(Topic("words"),), process=nothing), processor("words")]
    for reader, expected in zip(declared, [set(), {"words"}], strict=True):
        each = topology(processor("lines", process=emits_words), reader)
        assert each.inferred_repartition_topics({"lines"}) == expected
    explicit = topology(declared[0]).inferred_repartition_topics({*made_before, "words"})
    assert explicit == set()
    made = made.with_repartition_topics(["words"])
    assert made.topics == ["lines", "more", "app-words-repartition"]
    assert made.repartition_counts({"lines": 2, "more": 5}) == {"app-words-repartition": 5}
    assert made.repartition_counts({"lines": 2, "more": 5, "app-words-repartition": 3}) == {
        "app-words-repartition": 3
    }
    assert topology(processor("lines"), processor("wrods")).inferred_repartition_topics([]) == set()


def test_names_in_the_code_of_the_reader_make_no_topic() -> None:
    """The name may be compared with ``record.topic``: the input is created later, or misspelled."""
    made = topology(processor("lines", "words", process=emits_words), processor("other"))
    assert made.inferred_repartition_topics({"lines", "other"}) == set()


def test_repartition_topics_match_the_other_inputs_of_their_store() -> None:
    made = topology(
        processor("lines", process=emits_words),
        processor("users", stores=("s",)),
        Processor(topics=(RepartitionTopic("words"),), stores=(Store("s"),), process=nothing),
        Processor(topics=(RepartitionTopic("given", partitions=7),), process=nothing),
        Processor(topics=(RepartitionTopic("any"),), process=nothing),
    )
    assert made.repartition_counts({"lines": 2, "users": 4}) == {
        "app-words-repartition": 4,
        "app-given-repartition": 7,
        "app-any-repartition": 7,
    }


def test_topics_have_one_processor() -> None:
    made = app()
    made.processor("a", store="x")(nothing)
    with pytest.raises(ConfigError, match="'a' is read by two"):
        made.processor("b", "a", store="y")(nothing)
    with pytest.raises(ConfigError, match="'c' is read by two"):
        made.processor("c", "c")(nothing)
    with pytest.raises(ConfigError, match=r"store 'x' is declared as .*bytes.* and as .*int"):
        made.processor("d", store=Store("x", value=int))(nothing)
    with pytest.raises(ConfigError, match="'a' takes dead letters and is an input"):
        made.processor("e", on_error=DeadLetter("a"))(nothing)


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda: processor("app-s-changelog", stores=("s",)), "'app-s-changelog' is a changelog"),
        (lambda: processor("app-x-repartition", "x"), "'app-x-repartition' is a changelog or"),
        (lambda: dead("app-x-repartition"), "'app-x-repartition' is .* nor takes dead letters"),
        (lambda: processor("x", stores=("s" * 240,)), r"application\.id and store 'sss.* 249"),
        (lambda: repartitioned("t" * 240), r"application\.id and topic 'ttt.* 249"),
    ],
)
def test_names_of_the_applications_own_topics(declare: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        topology(declare())


def dead(topic: str) -> Processor:
    handler = DeadLetter(topic)
    return Processor(topics=(Topic("x"),), process=nothing, processing_exception_handler=handler)


def repartitioned(topic: str) -> Processor:
    return Processor(topics=(RepartitionTopic(topic),), process=nothing)


async def two(record: object, emit: object) -> None: ...
async def three(record: object, store: object, emit: object) -> None: ...
def not_async(record: object, emit: object) -> None: ...


@pytest.mark.parametrize(
    ("process", "options", "message"),
    [
        (not_async, {}, r"not_async is not a coroutine function: async def not_async\(record, em"),
        (three, {}, r"three cannot be called as three\(record, emit\): .*0 declared"),
        (two, {"store": "s"}, r"cannot be called as two\(record, store, emit\).*1 declared"),
        (nothing, {"store": "s", "stores": ["t"]}, "either store= or stores="),
        (nothing, {"stores": "s"}, "give a list of stores"),
        (nothing, {"stores": ["s", "s"]}, "has a store twice"),
        (nothing, {"store": 5}, "5 is no store"),
        (nothing, {"store": "../x"}, r"store '\.\./x': no topic can be named"),
        (nothing, {"on_error": "ignore"}, "on_error is 'ignore'"),
        (nothing, {"value": "str"}, "the value type of topic 't' is 'str': give a type"),
        (nothing, {"key": object()}, "the key type of topic 't' is .* has no serde"),
        (nothing, {"value": Serde(str.encode)}, "values of topic 't' cannot be read"),
    ],
)
def test_invalid_processors(process: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        app().processor("t", **options)(process)


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda: app().processor(two), r"write|@app\.processor\('topic'\)"),
        (lambda: app().processor(), r"@app\.processor\('topic'\)"),
        (lambda: app().processor("a b"), "topic 'a b': no topic can be named"),
        (lambda: app().processor(Topic("t"), key=str), "has its own types"),
        (lambda: Store("s", value=int | None), "value type of store 's' allows None"),
        (lambda: Store("s", value=Serde(str.encode)), "a store needs a Serde with two functions"),
        (lambda: Serde(5), r"Serde\(serialize=5\)"),
        (lambda: Serde(str.encode, 5), r"Serde\(deserialize=5\)"),
        (lambda: DeadLetter(".."), r"dead letter topic '\.\.'"),
        (lambda: RepartitionTopic("t", partitions=0), "has partitions=0: at least 1"),
        (lambda: RepartitionTopic("t", partitions=True), "has partitions=True: at least 1"),
        (lambda: RepartitionTopic("t", partitions=10**9), "at most 10,000"),
        (lambda: Topic("t", value=TypeVar("T")), "value type of topic 't' is ~T: give a type"),
    ],
)
def test_invalid_declarations(declare: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        declare()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"processing_guarantee": "exactly_once"}, r"processing\.guarantee is 'exactly_once'"),
        ({"application_id": ""}, r"application\.id ''"),
        ({"application_id": "../x"}, r"application\.id '\.\./x'"),
        ({"application_id": 5}, r"application\.id is 5; it must be of type str"),
        ({"state_dir": 5}, r"state\.dir is 5; it must be of type str or path"),
        ({"producer_options": 5}, r"producer\.options is 5; it must be of type mapping"),
        ({"commit_interval_ms": True}, r"commit\.interval\.ms is True; .* int"),
        ({"heartbeat_interval_ms": 10_000}, r"heartbeat\.interval\.ms is 10000"),
        ({"commit_interval_ms": -1}, r"commit\.interval\.ms is -1"),
        ({"repartition_purge_interval_ms": 0}, r"repartition\.purge\.interval\.ms is 0"),
        ({"replication_factor": 0}, r"replication\.factor is 0; it must be at least 1, or -1"),
        ({"replication_factor": 40_000}, r"replication\.factor is 40000"),
        ({"client_tags": {"zone": 1}}, r"client\.tags has 'zone': 1; names and values are"),
        ({"client_tags": {"": "a"}}, r"client\.tags has '': 'a'"),
        ({"state_dir": ""}, r"state\.dir is empty"),
        ({"state_dir": "~nobody-has-this-name/x"}, r"state\.dir is '~nobody.*home"),
        ({"max_warmup_replicas": 0}, r"max\.warmup\.replicas is 0"),
        ({"windows": True}, "windows"),
    ],
)
def test_invalid_options(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        app(**options)


def test_each_application_has_its_own_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    config = StreamsConfig(bootstrap_servers="localhost:1", application_id="app", state_dir="/var")
    assert config.directory == Path("/var/app")
    assert not config.exactly_once
    assert app(state_dir="~/x").config.directory == Path.home() / "x" / "app"
    kept = {"acks": "all", "enable_idempotence": True, "retries": 1}
    assert app(producer_options=kept, replication_factor=1).config.replication_factor == 1
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert app().config.directory.parts[-3:] == ("kafkaclient", "streams", "app")


async def test_an_application_without_processor_cannot_run() -> None:
    with pytest.raises(ConfigError, match="no processor"):
        await app().run()
    assert app().tasks() == []
