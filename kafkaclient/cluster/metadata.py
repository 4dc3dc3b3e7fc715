"""Keeps the view of the cluster fresh: one task, one request at a time, no more than needed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from kafkaclient.broker_errors import broker_error
from kafkaclient.cluster.backoff import retry_pause_s
from kafkaclient.cluster.topics import TopicInUse, TopicsInUse, no_metadata, topic_error
from kafkaclient.cluster.view import ClusterView, merge, with_leaders
from kafkaclient.errors import (
    AuthenticationError,
    BootstrapError,
    BrokerConnectionError,
    KafkaError,
    MetadataTimeoutError,
    ProducerClosedError,
    ProducerStateError,
    ProtocolError,
)
from kafkaclient.topic_names import check_topic_name
from kafkaclient.twins import log_pure_python
from kafkaclient.wire.metadata import MetadataCall, TopicCache

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafkaclient.cluster.router import Router
    from kafkaclient.cluster.view import LeaderHint, TopicView
    from kafkaclient.config import ClientConfig
    from kafkaclient.config.limit import Limit
    from kafkaclient.wire.api import BrokerInfo
    from kafkaclient.wire.results import MetadataResult

__all__ = ["Metadata"]

_log = logging.getLogger(__name__)

_REBOOTSTRAP_REQUIRED = 129

_PATIENCE_S = 3.0
"""How long the first broker asked has for its answer; doubled with each failure in a row, up to
the request timeout. A paused broker must not keep new leaders secret for 30 s."""

_AGE_JITTER = 0.1
"""Clients that started together shall not refresh together for ever."""


class Metadata:
    """The current :attr:`view` of the brokers and of the topics in use.

    It is asked for again every ``metadata_max_age_ms``, whenever :meth:`request_refresh` says
    that it is out of date, and for every new topic at once. Refreshes that are asked for pause
    at least ``retry_backoff_ms`` after the last answer, and up to ``retry_backoff_max_ms`` while
    answers fail or bring nothing new (KIP-580). A topic that was not used for
    ``metadata_max_idle_ms`` is forgotten (KIP-526) if ``release(topic)`` agrees, which then frees
    what else is kept for the topic, or tells that something depends on it. ``on_crash(who,
    error)`` is called when the refreshing has ended by itself, without an error when it was
    cancelled.

    With ``metadata_recovery_strategy`` rebootstrap, the bootstrap servers are asked again when no
    known broker can be connected (KIP-899: the router does that), when brokers have given no
    answer for ``metadata_recovery_rebootstrap_trigger_ms``, and when one says so (KIP-1102).
    """

    def __init__(
        self,
        config: ClientConfig,
        router: Router,
        *,
        clock: Callable[[], float] | None = None,
        rng: Random | None = None,
        release: Callable[[str], bool] = lambda _topic: True,
        on_crash: Callable[[str, BaseException | None], None] = lambda _who, _error: None,
    ) -> None:
        self.view = ClusterView()
        """The latest snapshot; replaced, never changed."""
        self.refreshed_at = float("-inf")
        """When brokers last told of everything in use, and not only of what is new, in the clock's
        seconds (Java: ``lastSuccessfulUpdate``)."""
        self._config = config
        self._router = router
        self._clock = clock or _loop_time
        self._rng = rng or Random()
        self._release = release
        self._on_crash = on_crash
        self._pause_s = partial(retry_pause_s, config=config, rng=self._rng)
        self._topics = TopicsInUse(self._pause_s, config.metadata_max_idle_ms / 1000)
        self._told = TopicCache()
        self._listeners: list[Callable[[ClusterView, ClusterView], None]] = []

        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._first_answer: asyncio.Future[None] | None = None

        self._reason: str | None = None
        self._requests = 0
        self._awaited: dict[asyncio.Future[None], int] = {}
        """Who waits for the answer to the request of that number, or a later one."""
        self._next_periodic_at = 0.0
        self._not_before = 0.0
        self._answered_at = 0.0
        self._failures = 0
        self._fruitless = 0
        self._last_error: KafkaError | None = None
        self._rebootstrap = False
        self._failing_since = 0.0

    # --- lifecycle --------------------------------------------------------------------------

    async def start(self) -> None:
        """Fetch the first view, and keep it fresh until :meth:`stop`.

        Raises :class:`~kafkaclient.errors.BootstrapError` when no bootstrap server answers
        within the config's ``call_limit``, and at once what no retry can mend, such as
        :class:`~kafkaclient.errors.UnsupportedVersionError`.
        """
        if self._task is not None:
            return
        log_pure_python()
        self._first_answer = asyncio.get_running_loop().create_future()
        self._reason = "start"
        self._task = asyncio.create_task(self._run(), name="refresh metadata")
        self._task.add_done_callback(self._run_ended)
        limit = self._config.call_limit
        try:
            async with asyncio.timeout(limit.seconds) as timeout:
                await self._first_answer
        except BaseException as error:
            await self.stop()
            if isinstance(error, TimeoutError) and timeout.expired():
                servers = ", ".join(f"{h}:{p}" for h, p in self._config.bootstrap_servers)
                raise BootstrapError(
                    f"no bootstrap server ({servers}) answered within {limit}: "
                    f"{self._last_error or 'no connection yet'}. Check the "
                    "addresses, that brokers run there, and that the network lets you through"
                ) from self._last_error
            raise

    async def stop(self) -> None:
        """End the refreshing; whoever waits for a topic, or in :meth:`start`, gets
        ``ProducerClosedError``."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
        self._fail_waiters(ProducerClosedError, "the client was closed while the topic was awaited")
        first = self._first_answer
        if first is not None and not first.done():
            first.set_exception(ProducerClosedError("the client was closed while it was starting"))
            first.exception()
        if task is not None:
            await asyncio.wait({task})

    # --- topics -----------------------------------------------------------------------------

    def add_topic(self, name: str) -> None:
        """Note that the topic is used now; a new one is fetched at once. Cheap when it is known.
        Raises :class:`~kafkaclient.errors.InvalidTopicError` for what no topic can be named."""
        self._use(name)

    async def wait_topic(
        self, name: str, timeout_s: float, *, fresh: bool = False, limit: Limit | None = None
    ) -> TopicView:
        """The topic's view, at once when it is known; else, or with ``fresh``, it is fetched.

        A topic that does not exist (yet) is asked for again, with backoff, until it does: the
        brokers may create it. Raises :class:`~kafkaclient.errors.MetadataTimeoutError` after
        ``timeout_s`` seconds, which are what is left of the ``limit`` (default: ``max.block.ms``),
        and at once what waiting cannot mend, such as an invalid name
        (:class:`~kafkaclient.errors.InvalidTopicError`), a missing authorisation, or brokers that
        refuse this client's credentials.
        """
        check_topic_name(name)
        name = str.__str__(name)  # without what a subclass, such as an enum, makes of it
        topic = self._use(name)
        known = self.view.topics.get(name)
        if known is not None and not fresh:
            return known
        if self._task is None:
            raise ProducerStateError("metadata is not being fetched: not started, or stopped")
        if topic.is_hopeless and self._clock() < topic.retry_at:
            raise topic_error(name, topic.code)  # just told: no need to ask again
        waiter: asyncio.Future[TopicView] = asyncio.get_running_loop().create_future()
        topic.waiters[waiter] = self._requests + 1 if fresh else 0
        if fresh:
            # The answer to a request under way may be older than the call.
            self.request_refresh(f"topic {name!r} may have changed")
        self._wake.set()
        try:
            async with asyncio.timeout(timeout_s) as timeout:
                told = await waiter
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
        # A hint may have told of a newer leader since the answer came.
        return self.view.topics.get(name, told)

    async def refresh(self, *, max_age_s: float = 0.0) -> None:
        """Fetch everything in use anew, unless that was done within the last ``max_age_s``.

        Raises MetadataTimeoutError when no broker has answered within the config's ``call_limit``.
        """
        if self._task is None:
            raise ProducerStateError("metadata is not being fetched: not started, or stopped")
        if self._clock() - self.refreshed_at < max_age_s:
            return
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # The answer to a request under way may be older than the call.
        self._awaited[answered] = self._requests + 1
        self.request_refresh("it was asked for")
        try:
            async with asyncio.timeout(self._config.call_limit.seconds) as timeout:
                await answered
        except TimeoutError:
            if not timeout.expired():
                raise
            cause = self._last_error or "no answer yet"
            raise MetadataTimeoutError(
                f"no broker told what has changed within {self._config.call_limit}: {cause}"
            ) from self._last_error
        finally:
            del self._awaited[answered]

    def topic_error(self, name: str) -> KafkaError | None:
        """What the brokers last said was wrong with the topic; None when nothing was."""
        topic = self._topics.by_name.get(name)
        return None if topic is None else topic.error

    def _use(self, name: str) -> TopicInUse:
        now = self._clock()
        topic = self._topics.by_name.get(name)
        if topic is None:
            check_topic_name(name)  # one that cannot be encoded would fail the request for all
            topic = self._topics.by_name[name] = TopicInUse(now)
            self._wake.set()
        topic.last_used = now
        return topic

    # --- refreshing -------------------------------------------------------------------------

    def request_refresh(self, reason: str) -> None:
        """Ask for a fresh view soon. However many ask, one request is made; those who ask while
        it is under way cause one more."""
        if self._reason is None:
            self._reason = reason
            if self._clock() - self._answered_at > self._config.retry_backoff_max_ms / 1000:
                self._fruitless = 0
            self._wake.set()

    def apply_leaders(
        self, hints: Iterable[LeaderHint], endpoints: Iterable[BrokerInfo] = ()
    ) -> None:
        """Believe the leaders that a Produce response named, when they are news (KIP-951)."""
        self._replace_view(with_leaders(self.view, hints, endpoints))

    def subscribe(self, listener: Callable[[ClusterView, ClusterView], None]) -> None:
        """Call ``listener(old, new)`` whenever the view has changed, or (with the same view
        twice) a topic's error has. An exception it raises is logged, nothing more."""
        self._listeners.append(listener)

    async def _run(self) -> None:
        while True:
            await self._until_due()
            now = self._clock()
            full = self._reason is not None or now >= self._next_periodic_at
            requested, self._reason = self._reason, None
            try:
                await self._refresh(full, requested)
            except KafkaError as error:
                self._failed(error, full, requested)
            except Exception as error:  # noqa: BLE001
                _log.exception("refreshing the metadata failed in an unexpected way")
                self._failed(KafkaError(f"{type(error).__name__}: {error}"), full, requested)

    async def _until_due(self) -> None:
        while True:
            self._wake.clear()
            delay = self._due_at() - self._clock()
            if delay <= 0:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._wake.wait()

    def _due_at(self) -> float:
        due = self._not_before
        if self._reason is None:
            due = max(due, self._next_periodic_at)
        retry_at = self._topics.retry_at(self._topics.missing(self.view.topics))
        if retry_at is not None:
            # A topic that somebody waits for is not held up by the pace of other refreshes.
            due = min(due, max(retry_at, self._not_before if self._failures else 0.0))
        return due

    async def _refresh(self, full: bool, requested: str | None) -> None:
        now = self._clock()
        if not self._failures:
            self._failing_since = now  # should this one fail
        if full:
            names = list(self._topics.by_name)
        else:
            missing, topics = self._topics.missing(self.view.topics), self._topics.by_name
            names = [name for name in missing if topics[name].retry_at <= now]
        request_timeout_s = self._config.request_timeout_ms / 1000
        self._requests += 1
        result = await self._router.call(
            MetadataCall(tuple(names), self._config.allow_auto_create_topics, self._told),
            timeout_s=min(request_timeout_s, _PATIENCE_S * 2.0 ** min(self._failures, 8)),
            bootstrap=self._asks_bootstrap(now),
        )
        # Reading a large answer takes a while, and so may taking it up: others go first.
        await asyncio.sleep(0)
        self._rebootstrap = self._recovers and result.error_code == _REBOOTSTRAP_REQUIRED
        if result.error_code:
            raise broker_error(result.error_code, "metadata request")
        if not result.brokers:
            # A broker that has just started knows of none yet; its answer would make us forget all.
            raise BrokerConnectionError("a broker answered with metadata that names no brokers")
        self._absorb(result, names, full, requested)

    @property
    def _recovers(self) -> bool:
        return self._config.metadata_recovery_strategy == "rebootstrap"

    def _asks_bootstrap(self, now: float) -> bool:
        """Whether to ask the bootstrap servers only. Without having been told so by a broker,
        every other time: those that are known may come back as well."""
        if self._rebootstrap:
            return True
        trigger_s = self._config.metadata_recovery_rebootstrap_trigger_ms / 1000
        due = self._failures > 0 and now - self._failing_since >= trigger_s
        if not (self._recovers and due and self.view.brokers and self._failures % 2):
            return False
        _log.warning(
            "no broker has answered for %.0f s: asking the bootstrap servers again",
            now - self._failing_since,
        )
        return True

    def _absorb(
        self, result: MetadataResult, names: list[str], full: bool, requested: str | None
    ) -> None:
        now = self._answered_at = self._clock()
        self._failures, self._last_error = 0, None
        if full:
            # Only now: a topic that is taken up again while it is asked for must not get lost.
            for name in self._topics.forget_idle(now, self._release):
                self._told.forget(name)
        old = self.view
        new = merge(old, result, now=now, keep=self._topics.by_name)
        errors_changed = self._topics.note(result, names, new, now)
        if full:
            self.refreshed_at = now
            changed = new.topics != old.topics or new.brokers != old.brokers
            self._fruitless = 0 if changed or requested is None else self._fruitless + 1
            self._not_before = now + self._pause_s(1 + self._fruitless)
            max_age_s = self._config.metadata_max_age_ms / 1000
            self._next_periodic_at = now + max_age_s * self._rng.uniform(1 - _AGE_JITTER, 1)
        if old.cluster_id not in (None, new.cluster_id):
            _log.warning("the cluster id changed from %s to %s", old.cluster_id, new.cluster_id)
        self._replace_view(new, notify=errors_changed)
        for name in names:
            if name in new.topics:
                self._topics.tell(new.topics[name], self._requests)
        self._tell_awaited(full)
        if any(self._lacks_leaders(new, name) for name in names):
            self.request_refresh("a partition has no leader")

    def _tell_awaited(self, full: bool) -> None:
        if self._first_answer is not None and not self._first_answer.done():
            self._first_answer.set_result(None)
        for answered, number in self._awaited.items():
            if full and number <= self._requests and not answered.done():
                answered.set_result(None)

    def _lacks_leaders(self, view: ClusterView, name: str) -> bool:
        # A leader that the answer's brokers do not contain (it just went, or comes back) cannot
        # be reached any more than none.
        topic = view.topics.get(name)
        return topic is not None and not topic.leaders <= view.brokers.keys()

    def _failed(self, error: KafkaError, full: bool, requested: str | None) -> None:
        self._failures += 1
        self._last_error = error
        self._not_before = self._clock() + self._pause_s(self._failures)
        if full and self._reason is None:
            self._reason = requested or "retry"
        first = self._first_answer
        if first is not None and not first.done() and self._is_hopeless(error):
            first.set_exception(error)
            first.exception()
        if isinstance(error, AuthenticationError):  # whoever waits would wait in vain
            self._topics.fail(lambda _name: error.for_one())
        level = logging.WARNING if self._failures == 1 else logging.INFO
        _log.log(
            level, "metadata could not be fetched (%d times in a row): %s", self._failures, error
        )

    def _is_hopeless(self, error: KafkaError) -> bool:
        """Whether a start that met the error shall fail at once."""
        if isinstance(error, ProtocolError):  # one server that is no broker; others may be
            return self._failures >= len(self._config.bootstrap_servers)
        return not error.retriable and not self._rebootstrap

    def _replace_view(self, new: ClusterView, *, notify: bool = False) -> None:
        old = self.view
        if new is old and not notify:
            return
        self.view = new
        self._router.update_brokers(new)
        if not notify and new.topics == old.topics and new.brokers == old.brokers:
            return
        for listener in self._listeners:
            try:
                listener(old, new)
            except Exception:  # noqa: BLE001
                _log.exception("a listener failed on new metadata")

    def _fail_waiters(self, kind: type[KafkaError], why: str) -> None:
        self._topics.fail(lambda name: kind(f"topic {name!r}: {why}"))

    def _run_ended(self, task: asyncio.Task[None]) -> None:
        if task is not self._task:
            return  # stopped on purpose
        self._task = None
        error = None if task.cancelled() else task.exception()
        cause = "cancelled" if task.cancelled() else repr(error)
        _log.error("the metadata task has ended unexpectedly: %s", cause)
        self._fail_waiters(KafkaError, f"the metadata task has ended unexpectedly: {cause}")
        first = self._first_answer
        if first is not None and not first.done():
            first.set_exception(KafkaError(f"the metadata task has ended unexpectedly: {cause}"))
            first.exception()
        self._on_crash("the refreshing of metadata", error)


def _loop_time() -> float:
    return asyncio.get_running_loop().time()
