"""Waits and outages of a client, each logged once; a start that took too long; calls in another
event loop; the end of a client that was not closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import warnings
from typing import TYPE_CHECKING

from kafkaclient.errors import BootstrapError
from kafkaclient.log_fields import log_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Hashable, Iterable

    from kafkaclient.config.kinds import Address, Limit


_ending: set[asyncio.Task[object]] = set()
"""Tasks that close dropped clients; event loops keep only weak references to tasks."""


def close_dropped(
    client: object,
    what: str,
    loop: asyncio.AbstractEventLoop,
    close: Callable[[], Coroutine[None, None, object]],
    _warn: Callable[..., None] = warnings.warn,
) -> None:
    """Warn of a client that was dropped without being closed, and close it in the background while
    its ``loop`` runs. Called by ``__del__``; ``what`` is the client's name for the message."""
    _warn(
        f"unclosed {what}: it was dropped without stop() or close(), which async with calls",
        ResourceWarning,
        source=client,
    )

    def begin() -> None:
        task = loop.create_task(close(), name="kafkaclient-stop")
        _ending.add(task)
        task.add_done_callback(_ending.discard)

    # The garbage collector may run in any thread. With a closed loop nothing is open.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(begin)


def in_another_loop(client: str, loop: asyncio.AbstractEventLoop) -> str:
    """Why a client of this ``loop`` cannot be used in the running one, and what helps."""
    advice = (
        f"that loop is closed: start a {client} in the new one"
        if loop.is_closed()
        else f"each asyncio.run has a loop of its own, so start a {client} in each; from another "
        "thread, use asyncio.run_coroutine_threadsafe"
    )
    return f"the {client} belongs to the event loop it was started in; {advice}"


def bootstrap_error(
    servers: Iterable[Address],
    limit: Limit,
    cause: BaseException | str | None,
    missing_token: str | None,
) -> BootstrapError:
    """The error of a start that took too long. ``cause``: the last failure, or what the servers
    have not done yet. ``missing_token``: why there was no token or ticket."""
    listed = ", ".join(f"{host}:{port}" for host, port in servers)
    if missing_token is not None:
        return BootstrapError(
            f"no login to a bootstrap server ({listed}) within {limit}: {missing_token}. Check the "
            "credentials, and that the identity provider or KDC can be reached from here. If it "
            "needs more time, raise the limit"
        )
    return BootstrapError(
        f"no bootstrap server ({listed}) answered within {limit}: {cause or 'no connection yet'}. "
        "Check the addresses, that brokers run there, and that the network allows connections to "
        "them"
    )


# --- waits ----------------------------------------------------------------------------------------

_log = logging.getLogger(__name__)

LOGGED_AFTER_S = 5.0  # a wait that lasts longer is logged
_AGAIN_S = 600.0  # seconds until the next wait for the same is logged


class Wait:
    """One caller's wait: ``with waits.wait(...):``."""

    __slots__ = ("_key", "_waits", "began", "why")

    def __init__(self, waits: Waits, key: _Key, why: Callable[[], str | None]) -> None:
        self._waits, self._key = waits, key
        self.why: Callable[[], str | None] = why
        self.began: float = 0.0

    def __enter__(self) -> None:
        self._waits._begin(self, self._key)

    def __exit__(self, _kind: object, error: BaseException | None, _: object) -> None:
        self._waits._end(self, self._key, error)


_Key = tuple[str, str | None]  # what is waited for, and the topic if it is one topic's


class Waits:
    """All waits of one client, which ``repr(producer)`` and health checks show, too.

    The first wait for something that lasts longer than ``LOGGED_AFTER_S`` is logged at WARNING.
    When no call waits for it any more, that is logged at WARNING, or at INFO if the last call has
    failed: the caller has the error. Waits for the same are then not logged for ten minutes. One
    timer looks at the oldest wait for each thing, so that a wait itself costs little. ``clock``
    returns seconds.
    """

    def __init__(self, clock: Callable[[], float], client_id: str | None = None) -> None:
        self._clock = clock
        self._client_id = client_id  # for log messages
        self._waiting: dict[_Key, dict[Wait, None]] = {}  # the oldest first
        self._logged: dict[_Key, float] = {}
        """When the wait that was logged began."""
        self._quiet_until: dict[_Key, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def wait(self, what: str, why: Callable[[], str | None], *, topic: str | None = None) -> Wait:
        """For the ``with`` block that waits for ``what``. ``why()`` is called if the wait lasts. It
        returns the last error, or what is late; None if a long wait is usual: it is not logged."""
        return Wait(self, (what, topic), why)

    def lasting(self, min_s: float = 0.0) -> list[tuple[str, str | None]]:
        """Text about each wait that has lasted for ``min_s`` seconds, with its topic."""
        now, found = self._clock(), []
        for (what, topic), waits in self._waiting.items():
            oldest = next(iter(waits))
            why, lasted = oldest.why(), now - oldest.began
            if why is not None and lasted >= min_s:
                callers = f"{len(waits)} calls" if len(waits) > 1 else "1 call"
                found.append((f"{callers} waiting for {what} for {lasted:.1f} s: {why}", topic))
        return found

    def _begin(self, wait: Wait, key: _Key) -> None:
        wait.began = self._clock()
        self._waiting.setdefault(key, {})[wait] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOGGED_AFTER_S, self._check)

    def _end(self, wait: Wait, key: _Key, error: BaseException | None) -> None:
        waits = self._waiting[key]
        del waits[wait]
        if not waits:
            del self._waiting[key]
        if not self._waiting and self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if key in self._logged and not waits:
            lasted = self._clock() - self._logged.pop(key)
            self._quiet_until[key] = self._clock() + _AGAIN_S
            level, outcome = (logging.INFO, "failed") if error else (logging.WARNING, "ended")
            text = "the wait for %s %s after %.1f s"
            _log.log(level, text, key[0], outcome, lasted, extra=self._log_fields(key))

    def _log_fields(self, key: _Key) -> dict[str, object]:
        return log_fields(topic=key[1], client_id=self._client_id)

    def _check(self) -> None:
        """Log the oldest wait for each thing, if it has lasted."""
        now, self._timer = self._clock(), None
        self._quiet_until = {key: end for key, end in self._quiet_until.items() if end > now}
        due = now + LOGGED_AFTER_S
        for key, waits in self._waiting.items():
            oldest = next(iter(waits))
            if oldest.began + LOGGED_AFTER_S > now:
                due = min(due, oldest.began + LOGGED_AFTER_S)
            elif key not in self._logged and key not in self._quiet_until:
                why = oldest.why()
                if why is not None:
                    self._logged[key] = oldest.began
                    text, lasted = "still waiting for %s after %.0f s: %s", now - oldest.began
                    _log.warning(text, key[0], lasted, why, extra=self._log_fields(key))
        if self._waiting:
            delay_s = max(0.1, due - now)
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._check)


# --- Which failures are news: an outage costs a line when it begins -------------------------------

_REMINDS_AFTER_S = 60.0  # seconds until an outage is logged again with `reminds`; doubled


class Outages:
    """What fails now, by key. ``clock`` returns seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failing: dict[Hashable, list[float]] = {}
        """When each began to fail, and when it is to be logged again."""

    def note_failure(self, key: Hashable, *, reminds: bool = False) -> bool:
        """Returns whether the failure is the first one since the last success, or with ``reminds``
        the first one after 1, 2, 4, ... minutes."""
        now = self._clock()
        outage = self._failing.get(key)
        if outage is None:
            self._failing[key] = [now, now + _REMINDS_AFTER_S]
            return True
        began, again_at = outage
        if not reminds or now < again_at:
            return False
        outage[1] = now + (now - began)
        return True

    def note_success(self, key: Hashable) -> float | None:
        """Returns for how many seconds the key had failed; None if it had not."""
        outage = self._failing.pop(key, None)
        return None if outage is None else self._clock() - outage[0]
