"""Serves a fake cluster over TCP, and its SASL."""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from kafkaclient.broker_errors import ErrorCode
from kafkaclient.testing.fake.log import RefusedError
from kafkaclient.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkaclient.testing.fake.interceptors import Request


# --- Serves a fake cluster over TCP ---------------------------------------------------------------

T = TypeVar("T")
_Class = TypeVar("_Class", bound=type)


class Served(Protocol):
    """A fake cluster, as :class:`Serving` uses it."""

    _thread: ServingThread | None

    def _open_ports(self) -> None: ...

    async def _close_ports(self) -> None: ...


S = TypeVar("S", bound=Served)


class Serving(Generic[S]):
    """The result of :meth:`FakeCluster.serve`, for one ``async with`` or ``with``."""

    def __init__(self, cluster: S) -> None:
        self._cluster = cluster

    async def __aenter__(self) -> S:
        self._cluster._open_ports()
        return self._cluster

    async def __aexit__(self, *_: object) -> None:
        await self._cluster._close_ports()

    def __enter__(self) -> S:
        thread = ServingThread()
        try:
            thread.call(self._cluster._open_ports)
        except BaseException:
            thread.stop()
            raise
        self._cluster._thread = thread
        return self._cluster

    def __exit__(self, *_: object) -> None:
        thread, self._cluster._thread = self._cluster._thread, None
        assert thread is not None
        try:
            asyncio.run_coroutine_threadsafe(self._cluster._close_ports(), thread.loop).result()
        finally:
            thread.stop()


class _RealTimeLoop(asyncio.SelectorEventLoop):
    """Timers go on when a test has replaced ``time.monotonic``: a class attribute is not replaced
    with it."""

    _clock = staticmethod(time.monotonic)

    def time(self) -> float:
        return self._clock()


class ServingThread:
    """An event loop on a thread."""

    def __init__(self) -> None:
        self.loop = _RealTimeLoop()
        self._thread = threading.Thread(target=self._run, name="fake-kafka", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.close()

    def is_current(self) -> bool:
        """Whether the caller runs in this thread."""
        return threading.current_thread() is self._thread

    def call(self, function: Callable[[], T]) -> T:
        """The function's result, from the thread. Do not call it in the thread itself."""

        async def run() -> T:
            return function()

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result()

    def stop(self) -> None:
        """End the loop and the thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()


def runs_in_its_thread(cluster: _Class) -> _Class:
    """Class decorator: the public methods may be called in any thread. While the cluster is served
    by a :class:`ServingThread`, they run in that thread."""
    for name, method in list(vars(cluster).items()):
        usual = inspect.isfunction(method) and not inspect.iscoroutinefunction(method)
        if usual and not name.startswith("_"):
            setattr(cluster, name, _dispatched(method))
    return cluster


def _dispatched(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(self: Served, *args: Any, **options: Any) -> Any:
        thread = self._thread
        if thread is None or thread.is_current():
            return method(self, *args, **options)
        return thread.call(lambda: method(self, *args, **options))

    return call


# --- SASL authentication for the listeners of a fake cluster --------------------------------------


def _accept(_mechanism: str, _message: bytes) -> str | None:
    return None


@dataclass(slots=True)
class _Peer:
    """The state of one connection. ``ends_at`` is None before the first authentication."""

    mechanism: str | None = None
    ends_at: float | None = None


@dataclass(slots=True)
class Sasl:
    """The SASL settings of a fake cluster.

    ``refusal(mechanism, message)`` returns the reason to refuse a client, or None. ``lifetime_s``
    is the session lifetime in seconds; 0 is unlimited. It may be changed at any time."""

    mechanisms: tuple[str, ...] = ("PLAIN", "OAUTHBEARER")
    refusal: Callable[[str, bytes], str | None] = _accept
    lifetime_s: float = 0.0
    messages: list[bytes] = field(default_factory=list)
    """The clients' authentication messages, in the order of arrival."""
    _peers: dict[int, _Peer] = field(default_factory=dict)

    def allows(self, request: Request, now: float) -> bool:
        """Whether the broker accepts the request in the current state of the connection."""
        peer = self._peer(request)
        if request.api_key == ApiKey.SASL_HANDSHAKE:
            return peer.mechanism is None
        if request.api_key == ApiKey.SASL_AUTHENTICATE:
            return peer.mechanism is not None
        if peer.ends_at is None and peer.mechanism is None:
            return request.api_key == ApiKey.API_VERSIONS
        return peer.mechanism is None and (peer.ends_at or 0.0) > now

    def is_authenticated(self, request: Request) -> bool:
        """Whether the connection has logged in; not for applications."""
        return self._peer(request).ends_at is not None

    def handshake(self, request: Request) -> dict[str, Any]:
        """The response to a SaslHandshake request; not for applications."""
        offered = list(self.mechanisms)
        if request.message.mechanism not in self.mechanisms:
            raise RefusedError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=offered)
        self._peer(request).mechanism = request.message.mechanism
        return {"mechanisms": offered}

    def authenticate(self, request: Request, now: float) -> dict[str, Any]:
        """The response to a SaslAuthenticate request; not for applications."""
        peer = self._peer(request)
        message = bytes(request.message.auth_bytes)
        self.messages.append(message)
        refusal = self.refusal(peer.mechanism or "", message)
        peer.mechanism = None
        if refusal is not None:
            peer.ends_at = None
            raise RefusedError(ErrorCode.SASL_AUTHENTICATION_FAILED, refusal)
        peer.ends_at = now + self.lifetime_s if self.lifetime_s else float("inf")
        return {"session_lifetime_ms": int(self.lifetime_s * 1000)}

    def _peer(self, request: Request) -> _Peer:
        return self._peers.setdefault(request.connection, _Peer())
