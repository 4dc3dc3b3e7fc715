"""A TCP proxy in front of one broker that understands Kafka's frames and injects faults.

Tests use it for faults of a network or a broker on real sockets, benchmarks for KIP-794's slow
broker. So its overhead is small while there is no fault.
"""

from __future__ import annotations

import asyncio
import time
from inspect import isfunction
from typing import TYPE_CHECKING, Any, Self, Unpack

from kafkaclient.testing.proxy.faults import HALF, Faults, FrameFault, ProxyCounters
from kafkaclient.testing.proxy.link import ProxiedConnection
from kafkaclient.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkaclient.testing.proxy.faults import WhichFrames


class FaultProxy:
    """Forwards connections to one broker, with faults that can be set and healed at any time.

    Faults apply to all current and future connections of the proxy. Times are in seconds. The proxy
    matches responses with requests, so a fault may apply to Produce responses only. A Produce
    request with acks=0 has no response.

    The methods that corrupt or truncate frames return a :class:`FrameFault`, whose ``hits`` counts
    the affected frames. They have these arguments in common: ``api_key`` (default Produce; None:
    every API), ``when`` (a predicate over the :class:`Frame`), ``every`` (each n-th matching
    frame), ``times`` (at most; default 1; None: until :meth:`heal`).

    ``target_host`` and ``target_port`` may be changed, and apply to later connections.
    ``encrypted``: the connections use TLS. The proxy then forwards bytes that it cannot read,
    counts no requests, and raises ValueError for faults of requests and responses.
    """

    def __init__(
        self,
        target_host: str,
        target_port: int,
        *,
        listen_host: str = "127.0.0.1",
        listen_port: int = 0,
        encrypted: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.target_host = target_host
        self.target_port = target_port
        self.counters: ProxyCounters = ProxyCounters()
        self._listen = (listen_host, listen_port)
        self._encrypted = encrypted
        self._clock = clock
        self._faults = Faults()
        self._links: set[ProxiedConnection] = set()
        self._server: asyncio.Server | None = None

    def __repr__(self) -> str:
        state = "stalled" if self._faults.stalled else f"{len(self._links)} connections"
        port = self._listen[1]
        return f"<FaultProxy :{port} -> {self.target_host}:{self.target_port}, {state}>"

    async def start(self) -> None:
        """Listen. With a ``listen_port`` of 0 the first start chooses a free port, and later starts
        use it again."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._accept, *self._listen)
        self._listen = self._server.sockets[0].getsockname()[:2]

    async def close(self) -> None:
        """Stop listening and cut every connection."""
        if self._server is None:
            return
        self._server.close()
        self.cut()
        if self._links:
            await asyncio.wait([link.done for link in self._links])
        await self._server.wait_closed()
        self._server = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def host(self) -> str:
        return self._listen[0]

    @property
    def port(self) -> int:
        """The port of the proxy; 0 before the first start if ``listen_port`` is 0."""
        return self._listen[1]

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._links)

    def delay_produce(self, seconds: float, *, overlapping: bool = False) -> None:
        """Delay every Produce response, one after the other on its connection; 0 ends the delay.

        This is the setup of KIP-794's experiment ("20ms sleep injected for each produce response"):
        a broker handles the requests of a connection one by one, so requests behind a sleeping one
        wait. A response leaves ``seconds`` after it arrived from the broker, and at least
        ``seconds`` after the previous response of its connection. Other connections do not wait,
        because a broker has several request handler threads.

        With ``overlapping`` the requests of a connection do not wait for each other either, as with
        brokers that write to an object store: each response leaves ``seconds`` after it arrived
        from the broker, in order.
        """
        self._faults.overlapping = overlapping
        self._set_service_time(ApiKey.PRODUCE, seconds)

    def delay_all(self, seconds: float) -> None:
        """As :meth:`delay_produce`, for the responses of all APIs without their own delay."""
        self._set_service_time(None, seconds)

    def _set_service_time(self, api_key: int | None, seconds: float) -> None:
        self._check_readable()
        if seconds > 0:
            self._faults.service_times[api_key] = seconds
        else:
            self._faults.service_times.pop(api_key, None)

    def round_trip(self, seconds: float) -> None:
        """Add a network round-trip time: half of ``seconds`` in each direction; 0 ends it.

        Requests do not wait for each other. The TCP handshake with the proxy is not delayed.
        """
        self._faults.one_way_s = seconds / 2

    def stall(self) -> None:
        """Forward nothing in either direction until :meth:`resume`, as a paused broker.

        Connections stay open. New connections are accepted and get no answer.
        """
        self._faults.stalled = True
        for link in self._links:
            link.stall()

    def resume(self) -> None:
        """End a stall, and forward the bytes that arrived during the stall."""
        self._faults.stalled = False
        for link in list(self._links):
            link.resume()

    def heal(self) -> None:
        """End every fault."""
        self._faults.heal()
        self.resume()

    def cut(self, *, reset: bool = False) -> int:
        """Close every connection now, with ``reset`` by RST instead of FIN. Returns the number."""
        links = list(self._links)
        for link in links:
            link.cut(reset=reset)
        return len(links)

    def cut_before(
        self,
        api_key: int | None = ApiKey.PRODUCE,
        *,
        reset: bool = False,
        **which: Unpack[WhichFrames],
    ) -> FrameFault:
        """Cut the connection at a matching request, which the broker does not receive."""
        return self._spoil(self._faults.requests, api_key=api_key, keep=0, reset=reset, **which)

    def cut_after(
        self,
        api_key: int | None = ApiKey.PRODUCE,
        *,
        reset: bool = False,
        **which: Unpack[WhichFrames],
    ) -> FrameFault:
        """Cut the connection at the response to a matching request; the client does not get it."""
        return self._spoil(self._faults.responses, api_key=api_key, keep=0, reset=reset, **which)

    def truncate_request(
        self,
        api_key: int | None = ApiKey.PRODUCE,
        *,
        keep: int = HALF,
        **which: Unpack[WhichFrames],
    ) -> FrameFault:
        """Forward the first ``keep`` bytes of a matching request (default: half), then cut."""
        return self._spoil(self._faults.requests, api_key=api_key, keep=keep, **which)

    def truncate_response(
        self,
        api_key: int | None = ApiKey.PRODUCE,
        *,
        keep: int = HALF,
        **which: Unpack[WhichFrames],
    ) -> FrameFault:
        """Forward the first ``keep`` bytes of a matching response (default: half), then cut."""
        return self._spoil(self._faults.responses, api_key=api_key, keep=keep, **which)

    def corrupt_request(
        self,
        xor: Mapping[int, int],
        api_key: int | None = ApiKey.PRODUCE,
        **which: Unpack[WhichFrames],
    ) -> FrameFault:
        """Change bytes of a matching request: offset in the frame -> mask to XOR with.

        Offset 0 is the first byte of the size field; negative offsets count from the frame's end.
        ``{-8: 0xFF}`` changes record bytes of a Produce request, so the broker's CRC check fails.
        """
        return self._spoil(self._faults.requests, api_key=api_key, xor=dict(xor), **which)

    def corrupt_response(
        self,
        xor: Mapping[int, int],
        api_key: int | None = ApiKey.PRODUCE,
        **which: Unpack[WhichFrames],
    ) -> FrameFault:
        """Change bytes of a matching response. Offsets 4 to 7 are its correlation id."""
        return self._spoil(self._faults.responses, api_key=api_key, xor=dict(xor), **which)

    def _spoil(self, faults: list[FrameFault], **arguments: Any) -> FrameFault:
        self._check_readable()
        fault = FrameFault(**arguments)
        faults.append(fault)
        return fault

    def _check_readable(self) -> None:
        if self._encrypted:
            raise ValueError("the connections are encrypted: the proxy sees no requests in them")

    def _accept(self) -> asyncio.Protocol:
        self.counters.connections += 1
        link = ProxiedConnection(
            self.counters.connections,
            self._faults,
            self.counters,
            self._connect,
            self._clock,
            encrypted=self._encrypted,
        )
        self._links.add(link)
        link.done.add_done_callback(lambda _: self._links.discard(link))
        return link.client

    def _connect(self, broker_end: asyncio.Protocol) -> asyncio.Task[None]:
        async def connect() -> None:
            loop = asyncio.get_running_loop()
            await loop.create_connection(lambda: broker_end, self.target_host, self.target_port)

        return asyncio.create_task(connect())


PROXY_FAULTS = frozenset(
    name for name, it in vars(FaultProxy).items() if isfunction(it) and not name.startswith("_")
) - {"start", "close"}
"""The methods that set and end faults, which other processes may call."""
