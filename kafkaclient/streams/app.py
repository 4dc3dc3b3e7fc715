"""A stateful stream application: topics are read, state is kept, topics are written."""

from __future__ import annotations

import asyncio
import inspect
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    ParamSpec,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)

from kafkaclient.errors import ConfigError, StoreUnavailableError, StreamsError
from kafkaclient.streams.config import StreamsConfig
from kafkaclient.streams.declarations import (
    FAIL,
    NOT_GIVEN,
    ErrorHandler,
    Store,
    Topic,
    check_function,
    declared_stores,
    declared_topic,
    validate_handler,
)
from kafkaclient.streams.runtime.changelog_reader import ChangelogBytes
from kafkaclient.streams.runtime.instance import Instance
from kafkaclient.streams.runtime.observer import Observer
from kafkaclient.streams.runtime.queries import Queries, ReadOnlyStore
from kafkaclient.streams.state_directory import remove_state
from kafkaclient.streams.topology import Processor, Topology

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from typing import TypeAlias

    from kafkaclient.streams.declarations import Emit, Record
    from kafkaclient.streams.group_protocol import HostInfo
    from kafkaclient.streams.key_value_store import KeyValueStore
    from kafkaclient.streams.metrics import AppState, StreamsMetricsSnapshot
    from kafkaclient.streams.serdes import Serde, TypeLike
    from kafkaclient.streams.tasks import TaskDescription
    from kafkaclient.streams.topology import Process

if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultTypeVar

    DK = DefaultTypeVar("DK", default=bytes | None)
    DV = DefaultTypeVar("DV", default=bytes | None)
K = TypeVar("K")
V = TypeVar("V")
SK = TypeVar("SK")
SV = TypeVar("SV")
K2 = TypeVar("K2")
V2 = TypeVar("V2")
P = TypeVar("P", bound="Process")
Q = ParamSpec("Q")

if TYPE_CHECKING:
    _Function: TypeAlias = Callable[Q, Coroutine[Any, Any, None]]
    _Decorator: TypeAlias = Callable[[_Function[Q]], _Function[Q]]
    _Stateless: TypeAlias = _Decorator[[Record[K, V], Emit]]
    _Stateful: TypeAlias = _Decorator[[Record[K, V], KeyValueStore[SK, SV], Emit]]


class _Handlers(TypedDict, total=False):
    on_error: ErrorHandler
    deserialization_exception_handler: ErrorHandler | None
    processing_exception_handler: ErrorHandler | None


class StreamsApp:
    """Reads topics, keeps state and writes topics. Instances share the partitions.

    ::

        app = StreamsApp("localhost:9092", application_id="words")

        @app.processor("lines", value=str)
        async def split(record, emit):
            for word in record.value.split():
                await emit("words", word, key=word)

        @app.processor("words", key=str, value=str, store=Store("counts", key=str, value=int))
        async def count(record, store, emit):
            store[record.key] = store.get(record.key, 0) + 1

        asyncio.run(app.run())

    Processors that share stores form a subtopology. Each partition of its input topics is a task.
    Each task has its own part of the stores, and a compacted changelog topic per store holds the
    changes. Keys that belong together must be in one partition. A task moves to another instance
    once that instance has the task's state (KIP-441).
    :class:`~kafkaclient.streams.config.StreamsConfig` has the options. docs/how-to/streams.md
    is the manual.

    Raises :class:`~kafkaclient.errors.ConfigError` for an invalid option.
    """

    def __init__(self, bootstrap_servers: str, **options: Any) -> None:
        try:
            self.config: StreamsConfig = StreamsConfig(
                bootstrap_servers=bootstrap_servers, **options
            )
        except TypeError as error:
            raise ConfigError(f"StreamsApp got invalid options: {error}") from error
        self.observer: Observer = Observer(
            state_listener=self.config.state_listener,
            restore_listener=self.config.restore_listener,
        )
        """Counts what all runs do."""
        self._topology = Topology(self.config.application_id)
        self._instance: Instance | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        """While :meth:`run` runs."""
        self._is_stopped = False
        self._stopped: asyncio.Event | None = None
        """While :meth:`run` runs."""

    @property
    def topology(self) -> Topology:
        """The processors that are registered so far."""
        return self._topology

    @overload
    def processor(
        self,
        *topics: str,
        key: type[DK] | Serde[DK] = ...,
        value: type[DV] | Serde[DV] = ...,
        **handlers: Unpack[_Handlers],
    ) -> _Stateless[DK, DV]: ...
    @overload
    def processor(
        self, *topics: Topic[K, V], **handlers: Unpack[_Handlers]
    ) -> _Stateless[K, V]: ...
    @overload
    def processor(
        self, first: Topic[K, V], second: Topic[K2, V2], /, **handlers: Unpack[_Handlers]
    ) -> _Decorator[[Record[K, V] | Record[K2, V2], Emit]]: ...
    @overload
    def processor(
        self,
        *topics: str,
        key: type[DK] | Serde[DK] = ...,
        value: type[DV] | Serde[DV] = ...,
        store: Store[SK, SV],
        **handlers: Unpack[_Handlers],
    ) -> _Stateful[DK, DV, SK, SV]: ...
    @overload
    def processor(
        self, *topics: Topic[K, V], store: Store[SK, SV], **handlers: Unpack[_Handlers]
    ) -> _Stateful[K, V, SK, SV]: ...
    @overload
    def processor(
        self, *topics: Topic[K, V], store: str, **handlers: Unpack[_Handlers]
    ) -> _Stateful[K, V, bytes, bytes]: ...
    @overload
    def processor(
        self,
        first: Topic[K, V],
        second: Topic[K2, V2],
        /,
        store: Store[SK, SV],
        **handlers: Unpack[_Handlers],
    ) -> _Decorator[[Record[K, V] | Record[K2, V2], KeyValueStore[SK, SV], Emit]]: ...
    @overload
    def processor(
        self,
        *topics: Topic[K, V],
        stores: Sequence[str | Store[Any, Any]],
        **handlers: Unpack[_Handlers],
    ) -> _Decorator[Concatenate[Record[K, V], ...]]: ...
    @overload
    def processor(
        self,
        *topics: str | Topic[Any, Any],
        key: TypeLike[Any] = ...,
        value: TypeLike[Any] = ...,
        store: str,
        **handlers: Unpack[_Handlers],
    ) -> _Decorator[Concatenate[Record[Any, Any], KeyValueStore[bytes, bytes], ...]]: ...
    @overload
    def processor(
        self,
        *topics: str | Topic[Any, Any],
        key: TypeLike[Any] = ...,
        value: TypeLike[Any] = ...,
        store: Store[Any, Any] | str = ...,
        stores: Sequence[str | Store[Any, Any]] = ...,
        **handlers: Unpack[_Handlers],
    ) -> _Decorator[Concatenate[Record[Any, Any], ...]]: ...

    def processor(
        self,
        *topics: Any,
        key: Any = NOT_GIVEN,
        value: Any = NOT_GIVEN,
        store: Any = None,
        stores: Any = (),
        on_error: ErrorHandler = FAIL,
        deserialization_exception_handler: ErrorHandler | None = None,
        processing_exception_handler: ErrorHandler | None = None,
    ) -> Any:
        """Register the decorated coroutine function for all records of ``topics``.

        The function is called with ``(record, emit)``, or ``(record, store, emit)`` with
        ``store=``, or with ``stores=[a, b]`` as ``(record, a, b, emit)``. ``record`` is a
        :class:`~kafkaclient.streams.Record`, each store the
        :class:`~kafkaclient.streams.KeyValueStore` of the record's task, and ``emit`` an
        :class:`~kafkaclient.streams.Emit`. A task processes its records one at a time. Tasks run
        concurrently.

        ``topics`` are names, with the types ``key`` and ``value``, or
        :class:`~kafkaclient.streams.Topic` objects, which have their types; the default is bytes.
        A store is a :class:`~kafkaclient.streams.Store`, or the name of a store of bytes.
        Processors with the same store share it: they are one subtopology, and run in the same
        tasks. A topic by name that does not exist is made by the application, if another
        processor's code has the name; see :class:`~kafkaclient.streams.RepartitionTopic`.

        ``on_error`` decides what happens to a record that cannot be decoded, or for which the
        processor raises. ``"fail"`` ends :meth:`run`. ``"skip"`` logs the record and continues.
        :class:`~kafkaclient.streams.DeadLetter` writes the record to a topic and continues. In each
        case the processor's store changes and emitted records for this record are dropped. The two
        other handlers, named as in Kafka Streams, override ``on_error`` for decoding or for
        processing. Emitted records are sent after the processor has returned, which may take any
        time. Topics that it emits to must exist.

        Raises:
            ConfigError: another processor reads a topic, a store is declared with two types, an
                argument is invalid, or the function is no coroutine function with these parameters.
            StreamsError: the application is running.
        """
        if not topics or inspect.isroutine(topics[0]):
            raise ConfigError("a processor needs the topics that it reads: @app.processor('topic')")
        declared = tuple(declared_topic(each, key, value) for each in topics)
        found = declared_stores(store, stores)
        decoding = validate_handler(deserialization_exception_handler or on_error, "on_error")
        processing = validate_handler(processing_exception_handler or on_error, "on_error")

        def register(process: P) -> P:
            if self._instance is not None:
                raise StreamsError(
                    "the application is running: register all processors before run()"
                )
            check_function(process, len(found))
            self._topology = self._topology.with_processor(
                Processor(
                    topics=declared,
                    by_name=frozenset(each for each in topics if isinstance(each, str)),
                    stores=found,
                    process=process,
                    deserialization_exception_handler=decoding,
                    processing_exception_handler=processing,
                )
            )
            return process

        return register

    async def run(self) -> None:
        """Run this instance until :meth:`stop` is called or the task is cancelled. At the end the
        processed records are committed, and the other instances take over immediately.

        Raises:
            ConfigError: the application has no processor.
            StateStoreError: the state directory is in use or damaged, the disk is full, or a
                changelog does not match its input topic.
            DeserializationError: a record cannot be decoded; the message names the record.
            ProcessingError: a processor raised, see the cause; the message names the record.
            StreamsError: an input or dead letter topic is missing, an input by name exists and also
                as a repartition topic, inputs of a store have different numbers of partitions, or
                the group or the brokers are unreachable.
            KafkaError: an emitted record was rejected with an error that retries do not cure.
        """
        if not self._topology.processors:
            raise ConfigError("the application has no processor: add one with @app.processor(...)")
        if self._instance is not None:
            raise StreamsError("the application is already running; use one process per instance")
        self._stopped = asyncio.Event()  # belongs to this event loop
        if self._is_stopped:
            self._stopped.set()
        self._instance = Instance(self.config, self._topology, self.observer)
        self._loop = asyncio.get_running_loop()
        self.observer.run_started()
        failure: BaseException | None = None
        try:
            await self._instance.run(self._stopped)
        except BaseException as error:
            failure = error
            raise
        finally:
            self._instance = self._stopped = self._loop = None
            self._is_stopped = False
            is_cancelled = isinstance(failure, asyncio.CancelledError)
            self.observer.run_ended(None if is_cancelled else failure)

    def stop(self) -> None:
        """Make :meth:`run` commit and return. Before :meth:`run`, the next run returns at once."""
        self._is_stopped = True
        if self._stopped is not None:
            self._stopped.set()

    def clean_up(self) -> None:
        """Remove this instance's local state, for example after ``kafkaclient streams reset``
        (Java: ``KafkaStreams.cleanUp``). The tasks' state is restored from the changelogs.

        Raises :class:`~kafkaclient.errors.StreamsError` while the application runs, and
        :class:`~kafkaclient.errors.StateStoreError` if another process uses the directory.
        """
        if self._instance is not None:
            raise StreamsError("the application is running; its state is in use")
        remove_state(self.config.directory)

    @property
    def state(self) -> AppState:
        """The state of this instance; ``state_listener`` is told its changes."""
        return self.observer.state

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop in which :meth:`run` runs. None: the application does not run."""
        return self._loop

    def metrics(self) -> StreamsMetricsSnapshot:
        """The metrics of this instance, under Kafka Streams' names (docs/reference/metrics.md).
        Totals count over all runs of this object. Call it on the application's event loop."""
        instance = self._instance
        tasks = self.tasks()
        warmups = 0 if instance is None else instance.warmups
        return self.observer.metrics.snapshot(self.state, tasks, warmups)

    @overload
    def store(self, store: Store[SK, SV]) -> ReadOnlyStore[SK, SV]: ...
    @overload
    def store(self, store: str) -> ReadOnlyStore[Any, Any]: ...
    def store(self, store: Any) -> ReadOnlyStore[Any, Any]:
        """A read-only view of a store, by its name or its declaration: the committed state of the
        active tasks of this instance. It can be made before :meth:`run`, and used while the
        application runs, on its event loop.

        Raises :class:`~kafkaclient.errors.ConfigError` if no processor has this store.
        """
        return ReadOnlyStore(self._declared(store), self._queries)

    def instance_for(
        self, store: str | Store[Any, Any], key: Any, *, partition: int | None = None
    ) -> HostInfo:
        """The ``application_server`` of the instance that has the key, which may be this one (Java:
        ``queryMetadataForKey``). Without ``partition`` the key is in the partition to which
        producers send it.

        Raises:
            ConfigError: no processor has this store, or it has no such partition.
            StoreUnavailableError: the application does not run, or the instance is not known,
                because it has no ``application_server`` or the group rebalances.
        """
        queries = self._queries()
        return queries.instance_of(queries.task_of(self._declared(store), key, partition))

    def _declared(self, store: Any) -> Store[Any, Any]:
        name = store.name if isinstance(store, Store) else store
        stores = {each.name: each for s in self._topology.subtopologies for each in s.stores}
        if not isinstance(name, str) or name not in stores:
            known = ", ".join(sorted(stores)) or "none"
            raise ConfigError(f"the application has no store {name!r}; its stores are: {known}")
        return stores[name]

    def _queries(self) -> Queries:
        queries = None if self._instance is None else self._instance.queries
        if queries is None:
            raise StoreUnavailableError(
                f"application {self.config.application_id!r} does not run here, or has not joined "
                "its group yet"
            )
        return queries

    @property
    def changelog_bytes(self) -> ChangelogBytes:
        """How much this instance has read from changelogs since :meth:`run` began."""
        return ChangelogBytes(0, 0) if self._instance is None else self._instance.changelog_bytes

    def tasks(self) -> list[TaskDescription]:
        """This instance's current tasks, sorted."""
        return [] if self._instance is None else self._instance.tasks()
