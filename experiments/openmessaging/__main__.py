"""``python -m experiments.openmessaging``: a worker for the OpenMessaging Benchmark.

    python -m experiments.openmessaging [--port 8080]

It listens on 127.0.0.1. The calls and their JSON are those of the worker in Java
(``io.openmessaging.benchmark.worker.WorkerHandler``), so either can stand in the driver's list:
``bin/benchmark --drivers kafka.yaml --workers http://127.0.0.1:8080,http://127.0.0.1:8081 ...``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import signal
import sys
from typing import TYPE_CHECKING, Any

import uvloop
from aiohttp import web

from experiments.openmessaging.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

log = logging.getLogger("experiments.openmessaging")

_LARGEST_BODY = 1 << 30
"""A load comes with all its payloads."""


def application(worker: Worker) -> web.Application:
    """The worker's calls over HTTP. A call that raises answers 500 and the error's text."""

    async def create_topics(text: str) -> list[str]:
        body = json.loads(text)
        return await worker.create_topics(
            body["numberOfTopics"], body["numberOfPartitionsPerTopic"]
        )

    async def create_consumers(text: str) -> None:
        await worker.create_consumers(json.loads(text)["topicsSubscriptions"])

    async def start_load(text: str) -> None:
        body = json.loads(text)
        keys = body.get("keyDistributorType") or "NO_KEY"
        worker.start_load(body["payloadData"], body["publishRate"], keys)

    app, stats = web.Application(client_max_size=_LARGEST_BODY), worker.stats
    posts: dict[str, Callable[[str], Any]] = {
        "/initialize-driver": worker.initialize,
        "/create-topics": create_topics,
        "/create-producers": lambda text: worker.create_producers(json.loads(text)),
        "/create-consumers": create_consumers,
        "/probe-producers": lambda _: worker.probe(),
        "/start-load": start_load,
        "/adjust-publish-rate": lambda text: worker.adjust_rate(float(text)),
        "/pause-consumers": lambda _: worker.pause(),
        "/resume-consumers": lambda _: worker.resume(),
        "/reset-stats": lambda _: stats.clear_latencies(),
        "/stop-all": lambda _: worker.stop(),
    }
    gets: dict[str, Callable[[str], Any]] = {
        "/counters-stats": lambda _: stats.counters(),
        "/period-stats": lambda _: stats.period(),
        "/cumulative-latencies": lambda _: stats.cumulative(),
    }
    app.add_routes([web.post(path, _handler(call)) for path, call in posts.items()])
    app.add_routes([web.get(path, _handler(call)) for path, call in gets.items()])
    return app


def _handler(call: Callable[[str], Any]) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(request: web.Request) -> web.Response:
        try:
            found = call(await request.text())
            if asyncio.iscoroutine(found):
                found = await found
        except Exception as error:
            log.exception("%s failed", request.path)
            return web.Response(status=500, text=f"{request.path}: {error}")
        return web.Response() if found is None else web.json_response(found)

    return handle


async def serve(port: int) -> None:
    """Until SIGTERM or SIGINT."""
    worker, ended = Worker(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    runner = web.AppRunner(application(worker))
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        await ended.wait()
    finally:
        await worker.stop()
        await runner.cleanup()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8080)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    uvloop.run(serve(parser.parse_args().port))


if __name__ == "__main__":
    main()
