"""What an application can be told while it runs: its state, and how its stores are restored."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias

from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    from kafkaclient.types import TopicPartition


class AppState(Enum):
    """The state of an instance (Java: ``KafkaStreams.State``)."""

    CREATED = "created"
    """:meth:`~kafkaclient.streams.StreamsApp.run` was not called yet."""
    REBALANCING = "rebalancing"
    """The instance joins its group, or at least one of its active tasks does not run yet. Tasks
    that stay on this instance go on."""
    RUNNING = "running"
    """All active tasks of this instance run."""
    PENDING_SHUTDOWN = "pending shutdown"
    """The instance commits, closes its stores and leaves its group."""
    NOT_RUNNING = "not running"
    """``run`` has ended, because it was stopped or cancelled."""
    ERROR = "error"
    """``run`` has ended with an error."""


StateListener: TypeAlias = Callable[[AppState, AppState], object]
"""Called with the new and the old state (Java: ``KafkaStreams.StateListener``)."""


class RestoreListener:
    """Is told how the stores of active tasks are restored from their changelogs (Java:
    ``StateRestoreListener``). Override the methods you need. They run on the event loop, so they
    must return soon; an exception is logged.

    For each changelog partition: a start, any number of batches, then an end or, if the task is
    taken away or fails meanwhile, a suspension.
    """

    def on_restore_start(self, partition: TopicPartition, store: str, start: int, end: int) -> None:
        """The changelog ``partition`` of ``store`` is restored from offset ``start`` to ``end``,
        which is excluded."""

    def on_batch_restored(
        self, partition: TopicPartition, store: str, offset: int, records: int
    ) -> None:
        """``records`` changes were applied; the next one has at least this ``offset``."""

    def on_restore_end(self, partition: TopicPartition, store: str, records: int) -> None:
        """The store is restored; ``records`` changes were applied in total."""

    def on_restore_suspended(self, partition: TopicPartition, store: str, records: int) -> None:
        """The restoration stopped after ``records`` changes; another one may start."""


def checked_state_listener(listener: Any) -> StateListener | None:
    """The listener. Raises :class:`~kafkaclient.errors.ConfigError` if it cannot be one."""
    if listener is None:
        return None
    if not callable(listener) or isinstance(listener, type) or _is_async(listener):
        raise ConfigError(
            f"state_listener is {listener!r}; it must be a function (new, old), not a coroutine "
            "function"
        )
    try:
        inspect.signature(listener).bind(AppState.RUNNING, AppState.CREATED)
    except TypeError as error:
        raise ConfigError(
            f"state_listener {listener!r} cannot be called with the new and the old state: {error}"
        ) from None
    except ValueError:
        pass  # a builtin without signature
    return listener  # type: ignore[no-any-return]


def checked_restore_listener(listener: Any) -> RestoreListener | None:
    """The listener. Raises :class:`~kafkaclient.errors.ConfigError` if it cannot be one."""
    if listener is None:
        return None
    if not isinstance(listener, RestoreListener):
        raise ConfigError(
            f"restore_listener is {listener!r}; it must be an object of a subclass of "
            "kafkaclient.streams.RestoreListener"
        )
    for name in ("on_restore_start", "on_batch_restored", "on_restore_end", "on_restore_suspended"):
        if _is_async(getattr(listener, name)):
            raise ConfigError(f"restore_listener: {name} must not be a coroutine function")
    return listener


def _is_async(function: Any) -> bool:
    call = getattr(function, "__call__", None)  # noqa: B004 - a coroutine function in an object
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)
