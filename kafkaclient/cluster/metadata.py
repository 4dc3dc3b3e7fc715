"""Keeps the view of the cluster fresh: one task, one request at a time."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from functools import partial
from itertools import filterfalse
from typing import TYPE_CHECKING

from kafkaclient.cluster.backoff import RefreshSchedule, retry_pause_s, set_within
from kafkaclient.cluster.identity import differs, is_final, merge, with_leaders
from kafkaclient.cluster.topics import (
    TopicInUse,
    TopicsInUse,
    no_metadata,
    portions_of,
)
from kafkaclient.cluster.view import ClusterView
from kafkaclient.cluster.waits import bootstrap_error
from kafkaclient.errors import (
    AuthenticationError,
    KafkaError,
    MetadataTimeoutError,
    ProducerClosedError,
    ProducerStateError,
    counted,
)
from kafkaclient.log_fields import log_fields
from kafkaclient.time_limit import time_limit
from kafkaclient.topic_names import check_topic_name
from kafkaclient.wire.metadata import MetadataCall, TopicCache

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from random import Random
    from uuid import UUID

    from kafkaclient.cluster.router import Router
    from kafkaclient.cluster.view import LeaderHint, TopicView
    from kafkaclient.cluster.waits import Waits
    from kafkaclient.config import ClientConfig
    from kafkaclient.config.kinds import Limit
    from kafkaclient.wire.api import BrokerInfo, MetadataResult

_log = logging.getLogger(__name__)

# To decode the response to one request, or to take up one portion of it, keeps the event loop busy
# for 1 to 5 ms.
_REQUEST_PARTITIONS = 2000
_PORTION_PARTITIONS = 250


class Metadata:
    """The current :attr:`view` of the brokers and of the topics in use.

    It is requested every ``metadata_max_age_ms``, after :meth:`request_refresh`, and at once for
    every new topic. :class:`RefreshSchedule` decides when, :meth:`.Router.metadata` which broker
    is asked, and identity.py what is taken from its response. A refresh of many topics takes
    several requests, one after the other, and responses are taken up in portions: other callbacks
    of the event loop run in between.

    A topic that was not used for ``metadata_max_idle_ms`` is forgotten (KIP-526) if
    ``release(topic)`` returns True. It releases other data of the topic, or returns False because
    the topic is still needed. ``right`` is what the client needs on topics, as in ACLs; errors name
    it. ``is_awaited(topic)``: whether records wait for the topic, besides the callers of
    :meth:`wait_topic`. ``on_crash(task, error)`` is called when the task has ended unexpectedly;
    ``error`` is None if the task was cancelled.
    """

    def __init__(
        self,
        config: ClientConfig,
        router: Router,
        *,
        clock: Callable[[], float],
        rng: Random,
        waits: Waits,
        right: str = "Write",
        release: Callable[[str], bool] = lambda _topic: True,
        is_awaited: Callable[[str], bool] = lambda _topic: False,
        on_crash: Callable[[str, BaseException | None], None] = lambda _task, _error: None,
    ) -> None:
        self.view: ClusterView = ClusterView()
        """The latest snapshot, which is immutable."""
        self._config = config
        self._router = router
        self._clock = clock
        self.waits = waits
        """What the client's callers wait for."""
        self._release = release
        self._is_awaited = is_awaited
        self._on_crash = on_crash
        pause_s = partial(retry_pause_s, config=config, rng=rng)
        self._schedule = RefreshSchedule(config, pause_s, rng)
        self._topics = TopicsInUse(pause_s, config.metadata_max_idle_ms / 1000, right)
        self._told = TopicCache()
        self._listeners: list[Callable[[ClusterView, ClusterView], None]] = []
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._refreshes = 0
        self._awaited: dict[asyncio.Future[None], int] = {}
        """Callers of :meth:`start` (with 0) and :meth:`refresh`, with the number of the first
        refresh that answers them."""
        self._last_error: KafkaError | None = None
        self._outages = router.identity.outages

    @property
    def last_error(self) -> KafkaError | None:
        """Why the last refresh failed, such as a connection or a login; None: it has not."""
        return self._last_error

    @property
    def refreshed_at(self) -> float:
        """When all topics in use were last refreshed, in the clock's seconds (Java:
        ``lastSuccessfulUpdate``)."""
        return self._schedule.refreshed_at

    async def start(self) -> None:
        """Fetch the first view, and keep it fresh until :meth:`stop`.

        Raises BootstrapError when no bootstrap server answers within the config's ``start_limit``,
        or all of them refuse connections for its ``connect_limit``; and at once an error that no
        retry can remedy, such as UnsupportedVersionError.
        """
        if self._task is not None:
            return
        self._schedule.request("start", self._clock())
        self._task = asyncio.create_task(self._run(), name="refresh metadata")
        self._task.add_done_callback(self._run_ended)
        answered = False
        try:
            answered = await self._until_answered(0, self._config.start_limit)
        finally:
            if not answered:
                await self.stop()
        if not answered:
            cause, token = self._last_error, self._router.missing_token()
            limit = self._config.start_limit
            why = cause or self._router.pending_step()
            raise bootstrap_error(self._config.bootstrap_servers, limit, why, token) from cause

    async def stop(self) -> None:
        """End the task. Callers of :meth:`start`, :meth:`refresh` and :meth:`wait_topic` get
        ProducerClosedError."""
        task, self._task = self._task, None
        why = "the client was closed while the topic was awaited"
        self._topics.fail(lambda name: ProducerClosedError(f"topic {name!r}: {why}"))
        self._fail_awaited(ProducerClosedError("the client was closed while it fetched metadata"))
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    async def wait_topic(
        self, name: str, timeout_s: float, *, fresh: bool = False, limit: Limit | None = None
    ) -> TopicView:
        """The topic's view, at once if it is known; otherwise, or with ``fresh``, it is fetched.

        A topic that does not exist is requested again, with backoff, because the brokers may
        create it. Raises MetadataTimeoutError after ``timeout_s`` seconds, the rest of the
        ``limit`` (default: ``max.block.ms``). Raises at once an error that no retry can remedy: an
        invalid name, missing authorization, or brokers that refuse this client's credentials.
        """
        check_topic_name(name)
        name = str.__str__(name)  # a plain str in place of a subclass, such as an enum
        topic = self.add_topic(name)
        known = self.view.topics.get(name)
        if known is not None and not fresh:
            return known
        if self._task is None:
            raise ProducerStateError("metadata is not being fetched: not started, or stopped")
        if topic.is_permanent and self._clock() < topic.retry_at:
            raise self._topics.new_error(name)  # a recent answer: no need for another request
        waiter: asyncio.Future[TopicView] = asyncio.get_running_loop().create_future()
        topic.waiters[waiter] = self._refreshes + 1 if fresh else 0
        if fresh:
            # The answer to a request in flight may be older than the call.
            self.request_refresh(f"topic {name!r} may have changed")
        self._wake.set()
        what = f"metadata of topic {name!r}"
        wait = self.waits.wait(what, lambda: self._why_late(topic.error), topic=name)
        try:
            async with time_limit(timeout_s) as timeout:
                with wait:
                    found = await waiter
        except TimeoutError:
            if not timeout.expired():
                raise
            cause = self._last_error or topic.error
            auto_create = self._config.allow_auto_create_topics
            limit = limit or self._config.block_limit
            raise no_metadata(name, cause, limit, auto_create=auto_create) from cause
        finally:
            del topic.waiters[waiter]
            topic.last_used = self._clock()
        # A Produce response may have named a newer leader since then.
        return self.view.topics.get(name, found)

    async def refresh(self, *, max_age_s: float = 0.0, forget_topics: bool = False) -> None:
        """Fetch the metadata of all topics in use, unless it is less than ``max_age_s`` old. With
        ``forget_topics``, topics that nothing waits for are forgotten first.

        Raises MetadataTimeoutError when no broker has answered within the config's ``call_limit``.
        """
        if self._task is None:
            raise ProducerStateError("metadata is not being fetched: not started, or stopped")
        if forget_topics:
            self._forget_idle(max_idle_s=-1.0)  # also a topic that was used at this moment
        if self._clock() - self.refreshed_at < max_age_s:
            return
        self.request_refresh("it was asked for")
        # The answer to a request in flight may be older than the call.
        if not await self._until_answered(self._refreshes + 1, self._config.call_limit):
            cause = self._last_error or "no answer yet"
            raise MetadataTimeoutError(
                f"no broker answered a metadata request within {self._config.call_limit}: {cause}"
            ) from self._last_error

    async def _until_answered(self, refresh: int, limit: Limit) -> bool:
        """Whether a full refresh with this number, or a later one, is complete within the limit."""
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._awaited[answered] = refresh
        what = "newer metadata" if refresh else "the first metadata"
        try:
            async with time_limit(limit.seconds) as timeout:
                with self.waits.wait(what, self._why_late):
                    await answered
        except TimeoutError:
            if not timeout.expired():
                raise
            return False
        finally:
            del self._awaited[answered]
        return True

    def _why_late(self, topic_error: KafkaError | None = None) -> str:
        why = self._last_error or topic_error or self._router.pending_step() or "no answer yet"
        return str(why)

    def topic_id(self, name: str) -> UUID | None:
        """The id of the topic with this name; None if it is not known now."""
        topic = self.view.topics.get(name)
        return None if topic is None else topic.topic_id

    def topic_error(self, name: str) -> KafkaError | None:
        """The topic's error in the last response; None without error."""
        topic = self._topics.by_name.get(name)
        return None if topic is None else topic.error

    def topic_errors(self) -> dict[str, KafkaError]:
        """By topic in use, the error in the last response about the topic."""
        topics = self._topics.by_name.items()
        return {name: topic.error for name, topic in topics if topic.error is not None}

    def add_topic(self, name: str) -> TopicInUse:
        """Note that the topic is used now; a new topic is fetched at once. Cheap for a known one.
        Raises InvalidTopicError for an invalid name."""
        now = self._clock()
        topic = self._topics.by_name.get(name)
        if topic is None:
            check_topic_name(name)  # an invalid name would fail the request for all topics
            topic = self._topics.by_name[name] = TopicInUse(now)
            self._wake.set()
        topic.last_used = now
        return topic

    def request_refresh(self, reason: str) -> None:
        """Refresh the view soon. Calls while a request is in flight cause one more request, however
        many they are.
        """
        if self._schedule.request(reason, self._clock()):
            self._wake.set()

    def apply_leaders(
        self, hints: Iterable[LeaderHint], endpoints: Iterable[BrokerInfo] = ()
    ) -> None:
        """Take newer leaders from a Produce response (KIP-951)."""
        self._replace_view(with_leaders(self.view, hints, endpoints))

    def subscribe(self, listener: Callable[[ClusterView, ClusterView], None]) -> None:
        """Call ``listener(old, new)`` when the view has changed, and with the same view twice when
        a topic's error has changed. An exception of the listener is logged.
        """
        self._listeners.append(listener)

    async def _run(self) -> None:
        while True:
            await self._until_due()
            self._schedule.begin(self._clock())
            try:
                await self._refresh()
            except KafkaError as error:
                self._failed(error)
            except Exception as error:  # noqa: BLE001
                _log.exception(
                    "refreshing the metadata failed in an unexpected way", extra=self._log_fields()
                )
                self._failed(KafkaError(f"{type(error).__name__}: {error}"))

    async def _until_due(self) -> None:
        while True:
            self._wake.clear()
            retry_at = self._topics.retry_at(self._topics.missing(self.view.topics))
            delay = self._schedule.due_at(retry_at) - self._clock()
            if delay <= 0:
                return
            await set_within(self._wake, delay)

    async def _refresh(self) -> None:
        now, full = self._clock(), self._schedule.is_full
        if full:
            names = list(self._topics.by_name)
        else:
            missing, topics = self._topics.missing(self.view.topics), self._topics.by_name
            names = [name for name in missing if topics[name].retry_at <= now]
        self._refreshes += 1
        changed = False
        view = self.view.topics
        known = {name: view[name].partition_count for name in names if name in view}
        created = list(filter(self._may_create, names))
        others = list(filterfalse(self._may_create, names))
        requests = [
            (portion, group is created)
            for group in (created, others)
            for portion in portions_of(group, known, _REQUEST_PARTITIONS)
            if portion
        ] or [(names, False)]
        for request, create in requests:
            result = await self._router.metadata(
                MetadataCall(tuple(request), create, self._told),
                timeout_s=self._schedule.timeout_s,
                failures=self._schedule.failures,
            )
            told = {info.name: info for info in result.topics}
            sizes = {name: len(info.partitions) for name, info in told.items()}
            portions = portions_of(request, sizes, _PORTION_PARTITIONS)
            for portion in portions:
                await asyncio.sleep(0)  # other callbacks go first
                if full and request is requests[-1][0] and portion is portions[0]:
                    # Not before the response: a topic that was used again meanwhile must be kept.
                    self._forget_idle()
                infos = tuple([told[name] for name in portion if name in told])
                changed |= self._absorb(replace(result, topics=infos), portion)
        self._last_error = None
        self._schedule.succeeded(changed=changed)
        if (failed_s := self._outages.note_success(self)) is not None:
            _log.warning(
                "the cluster answers again: no metadata could be fetched for %.1f s",
                failed_s,
                extra=self._log_fields(),
            )
        if full:
            for answered, number in self._awaited.items():
                if number <= self._refreshes and not answered.done():
                    answered.set_result(None)

    def _may_create(self, name: str) -> bool:
        """Whether the brokers may create the topic: only if something waits for it, so that a
        deleted topic does not come back because this client still knows its name."""
        topic = self._topics.by_name[name]
        absent = name not in self.view.topics or topic.error is not None
        wanted = absent and self._config.allow_auto_create_topics
        return wanted and (bool(topic.waiters) or self._is_awaited(name))

    def _forget_idle(self, max_idle_s: float | None = None) -> None:
        for name in self._topics.forget_idle(self._clock(), self._release, max_idle_s):
            self._told.forget(name)

    def _absorb(self, result: MetadataResult, names: list[str]) -> bool:
        """Use the response to a request for these topics. Returns whether anything has changed."""
        now = self._clock()
        self._schedule.answered(now)
        old = self.view
        new = merge(old, result, now=now, keep=self._topics.by_name)
        errors_changed = self._topics.note(result, names, new, now)
        if differs(old.cluster_id, new.cluster_id):
            _log.warning(
                "the client has moved from cluster %s to cluster %s, which the bootstrap servers "
                "lead to",
                old.cluster_id,
                new.cluster_id,
                extra=self._log_fields(),
            )
        self._replace_view(new, notify=errors_changed)
        found = [new.topics[name] for name in names if name in new.topics]
        for topic in found:
            if self.topic_error(topic.name) is None:  # else it is being created again
                self._topics.resolve(topic, self._refreshes)
        # A leader that is not among the brokers (it is leaving, or returns) cannot be reached.
        if any(not topic.leaders <= new.brokers.keys() for topic in found):
            self.request_refresh("a partition has no leader")
        elif not new.doubts.keys().isdisjoint(names):
            self.request_refresh("a broker's metadata of a topic looks old")
        return new.topics != old.topics or new.brokers != old.brokers

    def _failed(self, error: KafkaError) -> None:
        self._last_error = error
        self._schedule.failed(self._clock())
        level = logging.WARNING if self._outages.note_failure(self, reminds=True) else logging.DEBUG
        limit = self._config.connect_limit
        servers = self._config.bootstrap_servers
        if is_final(error, self._schedule.failures, len(servers)):
            level = self._fail_starts(error, level)
        elif limit.seconds <= self._router.refused_s():
            level = self._fail_starts(bootstrap_error(servers, limit, error, None), level)
        if isinstance(error, AuthenticationError) and not error.retriable:
            self._topics.fail(lambda _name: error.for_one())  # waiting does not help
        problem = "metadata could not be fetched (%s in a row): %s"
        times = counted(self._schedule.failures, "time")
        _log.log(level, problem, times, error, extra=self._log_fields(error))

    def _fail_starts(self, error: KafkaError, level: int) -> int:
        """Fail the callers of :meth:`start`. The level to log the error at: they raise it."""
        starts = 0 in self._awaited.values()
        self._fail_awaited(error, refreshes=False)
        return logging.DEBUG if starts else level

    def _fail_awaited(self, error: KafkaError, *, refreshes: bool = True) -> None:
        """Fail the callers of :meth:`start`, and those of :meth:`refresh`."""
        for answered, refresh in self._awaited.items():
            if (refreshes or not refresh) and not answered.done():
                answered.set_exception(error)
                answered.exception()  # no "never retrieved" in the log if it was cancelled

    def _replace_view(self, new: ClusterView, *, notify: bool = False) -> None:
        old, self.view = self.view, new
        if new is old and not notify:
            return
        self._router.update_brokers(new)
        same = new.topics == old.topics and new.brokers == old.brokers
        if same and not notify and new.cluster_id == old.cluster_id:
            return
        for listener in self._listeners:
            try:
                listener(old, new)
            except Exception:  # noqa: BLE001
                _log.exception("a listener failed on new metadata", extra=self._log_fields())

    def _log_fields(self, error: KafkaError | None = None) -> dict[str, object]:
        return log_fields(error, client_id=self._config.client_id)

    def _run_ended(self, task: asyncio.Task[None]) -> None:
        if task is not self._task:
            return  # stopped on purpose
        self._task = None
        error = None if task.cancelled() else task.exception()
        cause = "cancelled" if task.cancelled() else repr(error)
        problem = f"the metadata task has ended unexpectedly: {cause}"
        # Programs that end cancel every task of the loop.
        level = logging.INFO if task.cancelled() else logging.ERROR
        _log.log(level, "%s", problem, extra=self._log_fields())
        self._topics.fail(lambda name: KafkaError(f"topic {name!r}: {problem}"))
        self._fail_awaited(KafkaError(problem))
        self._on_crash("the refreshing of metadata", error)
