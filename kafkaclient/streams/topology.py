"""An application's processors, and the subtopologies, tasks and topics that follow."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from kafkaclient.errors import ConfigError, StreamsError
from kafkaclient.streams.declarations import (
    FAIL,
    DeadLetter,
    ErrorHandler,
    RepartitionTopic,
    Store,
    Topic,
    checked_name,
)
from kafkaclient.streams.tasks import TaskId
from kafkaclient.types import TopicPartition

Process: TypeAlias = Callable[..., Awaitable[None]]
"""``async def process(record, emit)``, with the stores between the two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Processor:
    """A function with its input topics, its stores and its error handlers."""

    topics: tuple[Topic[Any, Any], ...]
    process: Process
    by_name: frozenset[str] = frozenset()
    """The topics that are declared by name, not by an object: the application may make these."""
    stores: tuple[Store[Any, Any], ...] = ()
    deserialization_exception_handler: ErrorHandler = FAIL
    processing_exception_handler: ErrorHandler = FAIL

    @property
    def name(self) -> str:
        return getattr(self.process, "__name__", repr(self.process))

    @property
    def dead_letter_topics(self) -> set[str]:
        """Topics to which records that cannot be decoded or processed are written."""
        handlers = (self.deserialization_exception_handler, self.processing_exception_handler)
        return {handler.topic for handler in handlers if isinstance(handler, DeadLetter)}

    def mentions(self, topic: str) -> bool:
        """Whether the function's code has the topic's name as a constant, as in
        ``emit("words", ...)``."""
        function = inspect.unwrap(self.process)
        function = getattr(function, "func", function)  # functools.partial
        code = getattr(function, "__code__", None)
        if code is None:  # an object that can be called
            code = getattr(type(function).__call__, "__code__", None)
        return code is not None and topic in _constants(code)


@dataclass(frozen=True, slots=True)
class Subtopology:
    """Processors that share stores, and so run in the same tasks."""

    processors: tuple[Processor, ...]

    @property
    def topics(self) -> list[str]:
        """The input topics, as the processors declare them."""
        return [topic.name for each in self.processors for topic in each.topics]

    @property
    def stores(self) -> list[Store[Any, Any]]:
        found = {store.name: store for each in self.processors for store in each.stores}
        return list(found.values())


@dataclass(frozen=True, slots=True)
class Topology:
    """The processors of an application. A subtopology's number is the position of its first
    processor among the first processors of all subtopologies, as in Kafka Streams.

    Processors and tasks know an input topic by the name that processors declare. Brokers know a
    repartition topic as ``{application.id}-{name}-repartition``: :meth:`topic_name`.
    """

    application_id: str
    subtopologies: tuple[Subtopology, ...] = ()
    repartition_topics: frozenset[str] = field(default=frozenset())
    """The declared names of the inputs that the application itself makes."""

    # --- declaring ------------------------------------------------------------------------------

    def with_processor(self, added: Processor) -> Topology:
        """The topology with one more processor. Raises ConfigError for a processor that does not
        fit to the others."""
        for topic in added.topics:
            if topic.name in self.inputs or [t.name for t in added.topics].count(topic.name) > 1:
                raise ConfigError(
                    f"topic {topic.name!r} is read by two processors; merge them into one"
                )
        known = {store.name: store for each in self.subtopologies for store in each.stores}
        for store in added.stores:
            if _types(known.get(store.name, store)) != _types(store):
                raise ConfigError(
                    f"store {store.name!r} is declared as {known[store.name]!r} and as {store!r}: "
                    "give both processors the same Store"
                )
        names = {store.name for store in added.stores}
        joined = [s for s in self.subtopologies if names & {store.name for store in s.stores}]
        merged = Subtopology((*(p for s in joined for p in s.processors), added))
        subtopologies = [
            merged if joined and each is joined[0] else each
            for each in self.subtopologies
            if each not in joined[1:]
        ]
        if not joined:
            subtopologies.append(merged)
        internal = {t.name for t in added.topics if isinstance(t, RepartitionTopic)}
        made = replace(self, subtopologies=tuple(subtopologies)).with_repartition_topics(internal)
        made._check_names(added)
        return made

    def _check_names(self, added: Processor) -> None:
        """Raise ConfigError for names of topics that exclude each other, or are too long."""
        if wrong := self.dead_letter_topics & self.inputs.keys():
            raise ConfigError(
                f"topic {min(wrong)!r} takes dead letters and is an input of the application: "
                "records that fail would be processed again and again"
            )
        for store in added.stores:
            what = f"application.id and store {store.name!r} make the changelog's name,"
            checked_name(self.changelog_topic(store.name), what)
        stores = (store.name for each in self.subtopologies for store in each.stores)
        own = {*map(self.changelog_topic, stores), *map(self._repartition_topic, self.inputs)}
        if wrong := own & (self.inputs.keys() | self.dead_letter_topics):
            raise ConfigError(
                f"topic {min(wrong)!r} is a changelog or repartition topic of this application, "
                "and so is neither its input by this name nor takes dead letters: use the store, "
                "or RepartitionTopic with the plain name"
            )

    def inferred_repartition_topics(self, existing: Collection[str]) -> set[str]:
        """Inputs that are declared by name, that do not exist on brokers, and whose name is in the
        code of a processor that does not read them: they are meant to be made by the application.
        Any other missing input may be a typing error, or may be created later.

        Raises StreamsError if an input by name exists, and also the repartition topic that an
        earlier run has made for it."""
        found = set()
        for name in {name for each in self.processors for name in each.by_name}:
            made = self._repartition_topic(name)
            if name not in existing:
                if any(p.mentions(name) for p in self.processors if name not in p.by_name):
                    found.add(name)
            elif made in existing:
                raise StreamsError(
                    f"topic {name} exists, and so does {made}, which this application has made "
                    f"when {name} did not exist. Say which one is the input: "
                    f"RepartitionTopic({name!r}) is {made}, Topic({name!r}) is {name}"
                )
        return found

    def with_repartition_topics(self, names: Collection[str]) -> Topology:
        """The topology, in which the application makes also these input topics. Raises ConfigError
        for names that are too long."""
        for name in names:
            what = f"application.id and topic {name!r} make the repartition topic's name,"
            checked_name(self._repartition_topic(name), what)
        return replace(self, repartition_topics=self.repartition_topics.union(names))

    # --- names ----------------------------------------------------------------------------------

    @property
    def processors(self) -> list[Processor]:
        return [each for subtopology in self.subtopologies for each in subtopology.processors]

    @property
    def inputs(self) -> dict[str, Topic[Any, Any]]:
        """The input topics by declared name."""
        return {topic.name: topic for each in self.processors for topic in each.topics}

    @property
    def dead_letter_topics(self) -> set[str]:
        return {topic for each in self.processors for topic in each.dead_letter_topics}

    @property
    def topics(self) -> list[str]:
        """The input topics as brokers know them: what every member of the group subscribes to."""
        return [self.topic_name(name) for name in self.inputs]

    def topic_name(self, declared: str) -> str:
        """The name on brokers of a topic that a processor declares or emits to."""
        return (
            self._repartition_topic(declared) if declared in self.repartition_topics else declared
        )

    def _repartition_topic(self, declared: str) -> str:
        return f"{self.application_id}-{declared}-repartition"

    @property
    def internal_topics(self) -> frozenset[str]:
        """The repartition topics, as brokers know them."""
        return frozenset(map(self.topic_name, self.repartition_topics))

    def changelog_topic(self, store: str) -> str:
        """The changelog topic's name, as in Kafka Streams."""
        return f"{self.application_id}-{store}-changelog"

    # --- tasks ----------------------------------------------------------------------------------

    def subtopology(self, task: TaskId) -> Subtopology:
        """Raises StreamsError for a task that this application does not have."""
        if not 0 <= task.subtopology < len(self.subtopologies):
            raise StreamsError(
                f"the group's leader has given this instance task {task}, and the processors here "
                f"make {len(self.subtopologies)} subtopologies, numbered from 0: give all "
                "instances the same processors with the same stores, in the same order"
            )
        return self.subtopologies[task.subtopology]

    def is_stateful(self, task: TaskId) -> bool:
        return bool(self.subtopology(task).stores)

    def sources(
        self, task: TaskId, partitions: Mapping[str, int] | None = None
    ) -> tuple[TopicPartition, ...]:
        """The task's input partitions, by the brokers' names. ``partitions``: topic -> number; a
        topic with fewer partitions than the task's number is omitted."""
        names = map(self.topic_name, self.subtopology(task).topics)
        found = [TopicPartition(name, task.partition) for name in names]
        if partitions is not None and len(found) > 1:
            found = [tp for tp in found if task.partition < partitions.get(tp.topic, 0)]
        return tuple(found)

    def changelogs(self, task: TaskId) -> tuple[TopicPartition, ...]:
        """The changelog partitions of the task's stores. Empty: the task is stateless."""
        names = (self.changelog_topic(store.name) for store in self.subtopology(task).stores)
        return tuple(TopicPartition(name, task.partition) for name in names)

    def tasks(self, partitions: Mapping[str, int]) -> list[TaskId]:
        """All tasks: as many per subtopology as its largest input topic has partitions.
        ``partitions``: topic, by the brokers' name -> number of partitions."""
        return [
            TaskId(number, partition)
            for number, subtopology in enumerate(self.subtopologies)
            for partition in range(
                max(partitions[self.topic_name(name)] for name in subtopology.topics)
            )
        ]

    def check_partitions(self, partitions: Mapping[str, int]) -> None:
        """Raise StreamsError if the inputs of processors with a common store have different numbers
        of partitions: the records of a key would be in different tasks."""
        for subtopology in self.subtopologies:
            counts = {
                topic: partitions[topic] for topic in map(self.topic_name, subtopology.topics)
            }
            if subtopology.stores and len(set(counts.values())) > 1:
                shown = ", ".join(f"{topic} has {count}" for topic, count in counts.items())
                stores = ", ".join(store.name for store in subtopology.stores)
                raise StreamsError(
                    f"the input topics of store {stores} have different numbers of partitions: "
                    f"{shown}. A key's records would be in different tasks: give the topics the "
                    "same number of partitions, or read one of them through a RepartitionTopic"
                )

    def repartition_counts(self, partitions: Mapping[str, int]) -> dict[str, int]:
        """Repartition topic, by the brokers' name -> the number of partitions it is made with.
        ``partitions``: the number of each topic that exists, by the brokers' name.

        The first of these that is known: the number that the application declares; the number of
        the other inputs of the same stores; the largest number of the inputs of the processors that
        mention the topic; the largest number of all inputs.
        """
        counts = dict(partitions)
        rules = (
            self._declared_or_beside,
            self._largest_before,
            lambda _name, known: max(known.values(), default=1),
        )
        while missing := [n for n in self.repartition_topics if self.topic_name(n) not in counts]:
            for rule in rules:
                found = {self.topic_name(n): rule(n, counts) for n in missing}
                if known := {name: count for name, count in found.items() if count is not None}:
                    counts |= known
                    break
        return {name: counts[name] for name in map(self.topic_name, self.repartition_topics)}

    def _declared_or_beside(self, name: str, counts: Mapping[str, int]) -> int | None:
        topic = self.inputs[name]
        if isinstance(topic, RepartitionTopic) and topic.partitions is not None:
            return topic.partitions
        for subtopology in self.subtopologies:
            if name in subtopology.topics and subtopology.stores:
                return max(self._known(subtopology.topics, counts), default=None)
        return None

    def _largest_before(self, name: str, counts: Mapping[str, int]) -> int | None:
        before = [t.name for p in self.processors if p.mentions(name) for t in p.topics]
        return max(self._known(before, counts), default=None)

    def _known(self, names: Collection[str], counts: Mapping[str, int]) -> Iterator[int]:
        return (counts[name] for name in map(self.topic_name, names) if name in counts)


def _types(store: Store[Any, Any]) -> tuple[str, str]:
    return store.key.declared, store.value.declared


def _constants(code: Any) -> set[str]:
    found = {each for each in code.co_consts if isinstance(each, str)}
    for each in code.co_consts:
        if hasattr(each, "co_consts"):
            found |= _constants(each)
    return found
