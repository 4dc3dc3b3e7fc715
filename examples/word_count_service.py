"""Count words, and answer over HTTP how often each was counted (FastAPI).

    python examples/word_count_service.py localhost:9092 lines --port 8001
    python examples/word_count_service.py localhost:9092 lines --port 8002
    curl localhost:8001/counts/kafka

Each instance has the counts of some words, and forwards questions for the others. The topic of
lines must exist. SIGTERM and Ctrl-C end an instance; the others take its words.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import re
import signal
import sys
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import uvicorn
from fastapi import FastAPI, HTTPException

from kafkaclient import KafkaError
from kafkaclient.errors import StoreUnavailableError
from kafkaclient.streams import (
    AppState,
    Emit,
    KeyValueStore,
    Record,
    RepartitionTopic,
    Store,
    StreamsApp,
)

COUNTS = Store("counts", key=str, value=int)
FORWARD_TIMEOUT_S = 2.0


def word_count(bootstrap: str, lines: str, words: str, **options: Any) -> StreamsApp:
    """The application; it makes the topic ``words`` itself."""
    app = StreamsApp(
        bootstrap, processing_guarantee="exactly_once_v2", num_standby_replicas=1, **options
    )

    @app.processor(lines, value=str)
    async def split(record: Record[bytes | None, str], emit: Emit) -> None:
        for word in re.findall(r"\w+", record.value.lower()):
            await emit(words, word, key=word)

    @app.processor(RepartitionTopic(words, key=str, value=str), store=COUNTS)
    async def count(record: Record[str, str], store: KeyValueStore[str, int], emit: Emit) -> None:
        store[record.key] = store.get(record.key, 0) + 1

    return app


def service(app: StreamsApp) -> FastAPI:
    """The questions that an instance answers."""
    web, http = FastAPI(), httpx.AsyncClient(timeout=FORWARD_TIMEOUT_S)
    counts = app.store(COUNTS)

    @web.get("/counts/{word}")
    async def count(word: str, forwarded: bool = False) -> dict[str, Any]:
        try:
            return {"word": word, "count": counts.get(word, 0)}
        except StoreUnavailableError as error:
            if error.instance is None or forwarded:  # it is being restored, or moves
                raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, str(error)) from error
            host, port = error.instance
        url = f"http://{host}:{port}/counts/{quote(word, safe='')}"
        try:
            answer = await http.get(url, params={"forwarded": True})
        except httpx.HTTPError as error:  # the instance has just ended
            raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, repr(error)) from error
        if answer.status_code != HTTPStatus.OK:
            raise HTTPException(answer.status_code, answer.text)
        found: dict[str, Any] = answer.json()
        return found

    @web.get("/ready")
    async def ready() -> dict[str, str]:
        if app.state is not AppState.RUNNING:
            raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, app.state.value)
        return {"state": app.state.value}

    return web


async def main() -> None:
    parser = argparse.ArgumentParser(description="Count the words of a topic's lines.")
    parser.add_argument("bootstrap", help="host:port of one broker or more, comma-separated")
    parser.add_argument("lines", help="the topic with lines")
    parser.add_argument("--host", default="127.0.0.1", help="where the others reach this instance")
    parser.add_argument("--port", type=int, default=8001)
    parser.add_argument("--application", default="word-count-service")
    parser.add_argument("--state-dir", type=Path, default=Path("state"))
    options = parser.parse_args()
    app = word_count(
        options.bootstrap,
        options.lines,
        f"{options.lines}-words",
        application_id=options.application,
        state_dir=options.state_dir / str(options.port),
        application_server=f"{options.host}:{options.port}",
    )
    config = uvicorn.Config(service(app), options.host, options.port, log_level="warning")
    server = uvicorn.Server(config)
    for number in (signal.SIGTERM, signal.SIGINT):  # uvicorn sends them again when it has ended
        asyncio.get_running_loop().add_signal_handler(number, app.stop)
    running = asyncio.create_task(app.run())
    running.add_done_callback(lambda _: setattr(server, "should_exit", True))
    await server.serve()
    app.stop()
    await running


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    try:
        asyncio.run(main())
    except KafkaError as error:  # a topic is missing, the directory is in use, ...
        sys.exit(f"ended: {error}")
