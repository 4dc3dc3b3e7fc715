"""Controls a broker's fault proxy, which runs in the supervisor, from the user's process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Unpack

from kafkaclient.testing.proxy.faults import HALF
from kafkaclient.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkaclient.testing.control import Control
    from kafkaclient.testing.proxy.faults import HowOften

__all__ = ["RemoteProxy"]


class RemoteProxy:
    """The methods of :class:`~kafkaclient.testing.proxy.FaultProxy` as coroutines.

    See there for details. ``api_key``, ``every`` and ``times`` are supported. Predicates over
    frames (``when``) are not, because they cannot be sent to another process."""

    def __init__(self, control: Control, broker: int) -> None:
        self._control = control
        self.broker = broker

    def __repr__(self) -> str:
        return f"<RemoteProxy of broker {self.broker}>"

    async def delay_produce(self, seconds: float) -> None:
        """Delay Produce responses one after the other (KIP-794's slow broker); 0 ends the delay."""
        await self._fault("delay_produce", seconds=seconds)

    async def delay_all(self, seconds: float) -> None:
        """Delay all responses one after the other; 0 ends the delay."""
        await self._fault("delay_all", seconds=seconds)

    async def round_trip(self, seconds: float) -> None:
        """Add a network round-trip time to all bytes; 0 ends it."""
        await self._fault("round_trip", seconds=seconds)

    async def stall(self) -> None:
        """Forward nothing and keep connections open until :meth:`resume`."""
        await self._fault("stall")

    async def resume(self) -> None:
        """End a stall."""
        await self._fault("resume")

    async def heal(self) -> None:
        """End every fault."""
        await self._fault("heal")

    async def cut(self, *, reset: bool = False) -> int:
        """Close every connection now. Returns the number of connections."""
        return int(await self._fault("cut", reset=reset) or 0)

    async def cut_before(
        self,
        api_key: ApiKey | None = ApiKey.PRODUCE,
        *,
        reset: bool = False,
        **often: Unpack[HowOften],
    ) -> None:
        """Cut the connection at a matching request, which the broker does not receive."""
        await self._fault("cut_before", api_key=api_key, reset=reset, **often)

    async def cut_after(
        self,
        api_key: ApiKey | None = ApiKey.PRODUCE,
        *,
        reset: bool = False,
        **often: Unpack[HowOften],
    ) -> None:
        """Cut the connection at the response to a matching request; the client does not get it."""
        await self._fault("cut_after", api_key=api_key, reset=reset, **often)

    async def truncate_request(
        self,
        api_key: ApiKey | None = ApiKey.PRODUCE,
        *,
        keep: int | None = None,
        **often: Unpack[HowOften],
    ) -> None:
        """Forward ``keep`` bytes of a matching request (default: half), then cut."""
        keep = HALF if keep is None else keep
        await self._fault("truncate_request", api_key=api_key, keep=keep, **often)

    async def truncate_response(
        self,
        api_key: ApiKey | None = ApiKey.PRODUCE,
        *,
        keep: int | None = None,
        **often: Unpack[HowOften],
    ) -> None:
        """Forward ``keep`` bytes of a matching response (default: half), then cut."""
        keep = HALF if keep is None else keep
        await self._fault("truncate_response", api_key=api_key, keep=keep, **often)

    async def corrupt_request(
        self,
        xor: Mapping[int, int],
        api_key: ApiKey | None = ApiKey.PRODUCE,
        **often: Unpack[HowOften],
    ) -> None:
        """Change bytes of a matching request: offset -> mask to XOR with."""
        await self._fault("corrupt_request", xor=list(xor.items()), api_key=api_key, **often)

    async def corrupt_response(
        self,
        xor: Mapping[int, int],
        api_key: ApiKey | None = ApiKey.PRODUCE,
        **often: Unpack[HowOften],
    ) -> None:
        """Change bytes of a matching response: offset -> mask to XOR with."""
        await self._fault("corrupt_response", xor=list(xor.items()), api_key=api_key, **often)

    async def _fault(self, fault: str, **arguments: Any) -> int | None:
        result: int | None = await asyncio.to_thread(
            self._control.call, "fault", broker=self.broker, fault=fault, arguments=arguments
        )
        return result
