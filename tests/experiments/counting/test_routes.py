"""An instance's own way to the brokers."""

from __future__ import annotations

import asyncio

from experiments.counting.routes import RoutedLoop, Routes


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(await reader.readline())
    writer.close()


async def _asked(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"hello\n")
    try:
        return await reader.readline()
    finally:
        writer.close()


def test_a_connection_goes_to_the_other_port() -> None:
    ports: dict[int, int] = {}

    async def main() -> bytes:
        server = await asyncio.start_server(_echo, "127.0.0.1", 0)
        async with server:
            ports[1] = server.sockets[0].getsockname()[1]
            asyncio.get_running_loop()._ports.update(ports)
            return await _asked(1)

    with asyncio.Runner(loop_factory=lambda: RoutedLoop({})) as runner:
        assert runner.run(main()) == b"hello\n"


async def test_proxies_for_each_broker() -> None:
    async with Routes.opened([("127.0.0.1", 1), ("127.0.0.1", 2)]) as routes:
        assert set(routes.ports) == {1, 2}
        assert len(set(routes.ports.values())) == 2
        routes.stall()
        routes.heal()
