"""Controls a broker's fault proxy, which runs in the supervisor, from the user's process."""

from __future__ import annotations

import asyncio
import functools
from inspect import signature
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

from kafkaclient.testing.proxy import FaultProxy

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from kafkaclient.testing.control import SupervisorClient


P = ParamSpec("P")


def _remote(
    method: Callable[Concatenate[FaultProxy, P], object],
) -> Callable[Concatenate[RemoteProxy, P], Coroutine[Any, Any, None]]:
    """A coroutine method that calls the method of the proxy in the supervisor."""
    parameters = signature(method)

    @functools.wraps(method)
    async def call(proxy: RemoteProxy, /, *args: P.args, **kwargs: P.kwargs) -> None:
        given = parameters.bind(proxy, *args, **kwargs).arguments
        _, *named = given.items()
        arguments = {name: value for name, value in named if name != "which"}
        await proxy._fault(method.__name__, **arguments, **given.get("which", {}))

    return call


class RemoteProxy:
    """The methods of :class:`~kafkaclient.testing.proxy.FaultProxy` as coroutines.

    See there for details. Predicates over frames (``when``) are not supported, because they cannot
    be sent to another process. The coroutines return None, except for :meth:`cut`."""

    def __init__(self, control: SupervisorClient, broker: int) -> None:
        self._control = control
        self.broker = broker

    def __repr__(self) -> str:
        return f"<RemoteProxy of broker {self.broker}>"

    delay_produce = _remote(FaultProxy.delay_produce)
    delay_all = _remote(FaultProxy.delay_all)
    round_trip = _remote(FaultProxy.round_trip)
    stall = _remote(FaultProxy.stall)
    resume = _remote(FaultProxy.resume)
    heal = _remote(FaultProxy.heal)
    cut_before = _remote(FaultProxy.cut_before)
    cut_after = _remote(FaultProxy.cut_after)
    truncate_request = _remote(FaultProxy.truncate_request)
    truncate_response = _remote(FaultProxy.truncate_response)
    corrupt_request = _remote(FaultProxy.corrupt_request)
    corrupt_response = _remote(FaultProxy.corrupt_response)

    async def cut(self, *, reset: bool = False) -> int:
        """Close every connection now. Returns the number of connections."""
        return int(await self._fault("cut", reset=reset) or 0)

    async def _fault(self, fault: str, **arguments: Any) -> int | None:
        if "when" in arguments:
            raise TypeError(f"{fault}: a predicate cannot be sent to another process")
        if "xor" in arguments:  # JSON has no integer keys
            arguments["xor"] = list(arguments["xor"].items())
        if arguments.get("keep", 0) is None:
            del arguments["keep"]
        result: int | None = await asyncio.to_thread(
            self._control.call, "fault", broker=self.broker, fault=fault, arguments=arguments
        )
        return result
