"""The stores of the partition limits: a compacted topic, which every client of the cluster can
read, or a file, for clients that cannot store the limits in the cluster.

The brokers' dynamic configuration cannot store the limits: brokers accept unknown keys, but never
return the values (checked on 4.3.1).
"""

from __future__ import annotations

import asyncio
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkaclient.admin.limits import LIMITS_TOPIC, Limits
from kafkaclient.broker_errors import ErrorCode, broker_error, denied
from kafkaclient.errors import ConfigError, KafkaError, ProtocolError, TopicExistsError
from kafkaclient.whole_file import write_whole
from kafkaclient.wire.fetch import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    FetchByNameCall,
    FetchPartition,
    FetchTopic,
    ListOffsetsCall,
)
from kafkaclient.wire.record_reader import BATCH_OVERHEAD, HEADER, BatchHeader, iter_records
from kafkaclient.wire.topics import NewTopic

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping

    from kafkaclient.admin.configs import Configs
    from kafkaclient.admin.controller import TopicRequests
    from kafkaclient.admin.session import AdminSession
    from kafkaclient.producer.producer import Producer
    from kafkaclient.wire.api import MetadataResult, TopicInfo
    from kafkaclient.wire.record_reader import Record

_REPLICATION_FACTORS = (3, 2, 1)  # the first that the cluster's brokers can have
_POLICY = "cleanup.policy"
_MAX_BYTES = 4 << 20
_MAX_WAIT_MS = 500

_WITHOUT = "--ignore-limits (Admin(..., limits=None)) ignores the limits"

_HEADER = "# Partition limits (KIP-578), written by kafkaclient limits set --limits-file\n"


class TopicLimits:
    """The limits in :data:`LIMITS_TOPIC`. Each request reads the topic.

    If two clients set the same limit at the same time, the later record in the log wins.
    """

    def __init__(
        self,
        session: AdminSession,
        requests: TopicRequests,
        configs: Configs,
        new_producer: Callable[[], Producer],
    ) -> None:
        self._session = session
        self._requests = requests
        self._configs = configs
        self._new_producer = new_producer

    def __str__(self) -> str:
        return f"the topic {LIMITS_TOPIC}"

    async def read(self, cluster: MetadataResult | None = None) -> Limits:
        """The limits, or no limits if the topic does not exist. Raises the error if the topic
        cannot be read: nothing is created while the limits are unknown. ``cluster`` is metadata of
        all topics, if the caller has it."""
        known = {topic.name for topic in cluster.topics} if cluster is not None else set()
        # Metadata of all topics omits topics that this client may not describe. Metadata of the
        # named topic has an authorization error instead, whether or not the topic exists.
        if LIMITS_TOPIC not in known and await self._topic() is None:
            return Limits()
        return await self._read()

    async def _topic(self) -> TopicInfo | None:
        """The topic, or None if it does not exist. Raises AuthorizationError."""
        topics = (await self._session.metadata((LIMITS_TOPIC,))).topics
        info = next((topic for topic in topics if topic.name == LIMITS_TOPIC), None)
        if info is None or info.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return None
        if info.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            allowed = denied(info.error_code, "Describe", LIMITS_TOPIC) or ""
            raise broker_error(
                info.error_code,
                "the partition limits cannot be read, and without them nothing is created or moved",
                advice=f"{allowed.replace('--operation Describe', '--operation Read')}, also "
                f"before the topic exists. {_WITHOUT}",
            )
        return info

    async def change(self, given: Mapping[str, str | int | None]) -> Limits:
        """Set the ``given`` limits and return all limits.

        Raises KafkaError if a concurrent change of another client set a different value.
        """
        wanted = Limits().changed(given)  # raises for unusable limits before any record is sent
        await self._ensure_topic()
        records = {name: wanted.as_properties()[name] for name in given}
        producer = self._new_producer()
        try:
            await producer.start()
            await asyncio.gather(
                *(
                    producer.send_nowait(
                        LIMITS_TOPIC, value and value.encode(), name.encode(), partition=0
                    )
                    for name, value in records.items()
                )
            )
        finally:
            await producer.stop(0)
        now = await self._read()
        lost = [name for name, value in records.items() if now.as_properties()[name] != value]
        if lost:
            raise KafkaError(
                f"setting {', '.join(lost)} in {self}: another client set a different value at the "
                f"same time, which is now in force: {now}; set it again if it is wrong"
            )
        return now

    async def _read(self) -> Limits:
        await self._check_policy()
        given: dict[str, str | int | None] = {}
        try:
            for record in await self._session.until_answered(self._records):
                name = (record.key or b"").decode()
                given[name] = None if record.value is None else record.value.decode()
            return Limits.parse(given)
        except (UnicodeDecodeError, ConfigError) as error:
            raise ProtocolError(
                f"{self} has a record that this client does not understand: {error}; a newer "
                "version of kafkaclient or another program may have written it"
            ) from error

    async def _check_policy(self) -> None:
        """Raise ConfigError if the brokers delete old limits. Without DescribeConfigs on the topic
        the policy is unknown."""
        found = (await self._configs.describe_topics((LIMITS_TOPIC,), (_POLICY,))).get(LIMITS_TOPIC)
        if found is None or isinstance(found, KafkaError) or _POLICY not in found:
            return
        policy = found[_POLICY].value or ""
        if "delete" in policy.split(","):
            raise ConfigError(
                f"{self} has {_POLICY}={policy}, so brokers delete the limits after a time. Run "
                f"`kafkaclient configs alter {LIMITS_TOPIC} --add-config "
                f"{_POLICY}=compact`, then check the limits. {_WITHOUT}"
            )

    async def _ensure_topic(self) -> None:
        """Create the topic if it is missing, with up to 3 replicas, and wait for its leader. The
        controller counts brokers that are down, and does not count cordoned brokers."""
        if await self._topic() is not None:
            await self._check_policy()
            return
        for replicas in _REPLICATION_FACTORS:
            topic = NewTopic(LIMITS_TOPIC, 1, replicas, {_POLICY: "compact"})
            outcome = (await self._requests.create([topic]))[LIMITS_TOPIC]
            if (
                not isinstance(outcome, KafkaError)
                or outcome.code != ErrorCode.INVALID_REPLICATION_FACTOR
            ):
                break
        if isinstance(outcome, KafkaError) and not isinstance(outcome, TopicExistsError):
            raise outcome
        await self._session.poll(
            self._topic,
            lambda info: info is not None and any(p.leader >= 0 for p in info.partitions),
        )

    async def _records(self) -> list[Record]:
        """Every record, up to the end offset at the time of the call. Raises the broker's error."""
        leader = await self._leader()
        position = await self._offset(leader, EARLIEST_TIMESTAMP)
        end = await self._offset(leader, LATEST_TIMESTAMP)
        found: list[Record] = []
        while position < end:
            for header, batch in _whole_batches(await self._fetch(leader, position)):
                following = header.base_offset + header.last_offset_delta + 1
                if following > position:
                    found += iter_records(batch)
                    position = following
        return found

    async def _leader(self) -> int:
        (info,) = (await self._session.metadata((LIMITS_TOPIC,))).topics
        _check(info.error_code)
        replicas: tuple[int, ...] = ()
        for found in info.partitions:
            if found.partition == 0 and found.leader >= 0:
                return found.leader
            replicas = found.replicas
        where = ", ".join(map(str, replicas)) or "unknown"
        advice = f"start the broker of a replica (brokers {where}). {_WITHOUT}"
        raise broker_error(
            ErrorCode.LEADER_NOT_AVAILABLE, f"partition {LIMITS_TOPIC}-0", advice=advice
        )

    async def _offset(self, leader: int, timestamp: int) -> int:
        call = ListOffsetsCall({LIMITS_TOPIC: (0,)}, timestamp=timestamp)
        (found,) = (await self._session.once(call, leader)).partitions
        _check(found.error_code)
        return found.offset

    async def _fetch(self, leader: int, position: int) -> memoryview:
        wanted = FetchTopic(LIMITS_TOPIC, None, (FetchPartition(0, position, _MAX_BYTES),))
        call = FetchByNameCall((wanted,), _MAX_WAIT_MS, min_bytes=1, max_bytes=_MAX_BYTES)
        result = await self._session.once(call, leader)
        for found in result.partitions:
            _check(found.error_code)
            return found.records
        _check(result.error_code)
        return memoryview(b"")


def _whole_batches(view: memoryview) -> Iterator[tuple[BatchHeader, memoryview]]:
    while len(view) >= BATCH_OVERHEAD:
        header = BatchHeader._make(HEADER.unpack_from(view))
        if header.size > len(view):
            return
        yield header, view[: header.size]
        view = view[header.size :]


def _check(code: int) -> None:
    if code:
        advice = denied(code, "Read", LIMITS_TOPIC)
        raise broker_error(code, f"reading {LIMITS_TOPIC}-0", advice=advice)


class FileLimits:
    """A properties file with the limits under KIP-578's names. Each request reads the file.

    Clients that do not use this file do not enforce its limits. If two clients set limits at the
    same time, the last write wins.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Raises ConfigError without the library javaproperties."""
        self._path = Path(path)
        try:
            self._properties: Any = import_module("javaproperties").PropertiesFile
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"the partition limits in {path} are read with javaproperties, which is not "
                "installed: pip install 'kafkaclient[properties]'"
            ) from error

    def __str__(self) -> str:
        return f"the file {self._path}"

    async def read(self) -> Limits:
        """The limits. Raises ConfigError if the file is missing or invalid: nothing is created
        while the limits are unknown."""
        return await asyncio.to_thread(self._read)

    async def change(self, given: Mapping[str, str | int | None]) -> Limits:
        """Set the ``given`` limits and return all limits. Raises ConfigError, and OSError if the
        file cannot be written; it is unchanged then."""
        return await asyncio.to_thread(self._change, given)

    def _read(self) -> Limits:
        try:
            given = dict(self._properties.loads(self._path.read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:  # not UTF-8, or an escape sequence Java refuses
            raise ConfigError(
                f"cannot read the partition limits in {self._path}: {error}; create the file with "
                f"kafkaclient limits set --limits-file {self._path}"
            ) from error
        try:
            return Limits.parse(given)
        except ConfigError as error:
            raise ConfigError(f"{self._path}: {error}") from error

    def _change(self, given: Mapping[str, str | int | None]) -> Limits:
        """Replace the file's lines with these limits. Its other lines, its permissions and a
        symbolic link to it stay."""
        exists = self._path.exists()
        limits = (self._read() if exists else Limits()).changed(given)
        try:
            text = self._path.read_text(encoding="utf-8") if exists else _HEADER
            file = self._properties.loads(text)
            for name, value in limits.as_properties().items():
                if value is not None:
                    file[name] = value
                elif name in file:
                    del file[name]
            write_whole(self._path, file.dumps())
        except OSError as error:
            directory = self._path.parent
            if directory.is_dir():
                raise
            raise ConfigError(
                f"cannot write the partition limits to {self._path}: there is no directory "
                f"{directory}; create it, or choose another file"
            ) from error
        return limits
