"""Counts keys as streams_instance.py does, and stops at a bad moment; see test_streams_zombies.py.

    python streams_zombie.py SOURCE TRIGGER OPTIONS

If the file TRIGGER has the word ``block``, the next processor blocks the event loop for 9 s. If it
has the word ``stop``, the process stops itself (SIGSTOP) when the first request with a commit's
changes is about to be written to its socket. Both happen once: the file is removed.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from kafkaclient import Producer
from kafkaclient.net.pipeline import Pipeline
from kafkaclient.streams import Store, StreamsApp


def triggered(trigger: Path, word: str) -> bool:
    if not trigger.exists() or trigger.read_text() != word:
        return False
    trigger.unlink()
    return True


def stop_in_the_next_commit(trigger: Path) -> None:
    send, write = Producer.send, Pipeline.send
    begun = False

    async def sending(self: Producer, topic: str, *args: Any, **options: Any) -> Any:
        nonlocal begun
        begun |= topic.endswith("-changelog") and triggered(trigger, "stop")
        return await send(self, topic, *args, **options)

    def writing(self: Pipeline, buffers: Any, request: Any, **options: Any) -> int:
        nonlocal begun
        if begun and request is not None and request.api == "PRODUCE":
            begun = False
            os.kill(os.getpid(), signal.SIGSTOP)
        return write(self, buffers, request, **options)

    Producer.send = sending  # type: ignore[method-assign]
    Pipeline.send = writing  # type: ignore[method-assign]


async def report(app: StreamsApp) -> None:
    printed = None
    while True:
        tasks = {str(found.task): found.state.value for found in app.tasks()}
        if tasks != printed:
            print(json.dumps(tasks), flush=True)
            printed = tasks
        await asyncio.sleep(0.02)


async def main(source: str, trigger: Path, options: str) -> None:
    app = StreamsApp(**json.loads(options))

    @app.processor(source, key=str, store=Store("counts", key=str, value=int))
    async def count(record, store, emit) -> None:
        if triggered(trigger, "block"):
            time.sleep(9)  # noqa: ASYNC251 - as a long computation does
        store[record.key] = store.get(record.key, 0) + 1
        await emit(f"{source}-counts", b"%d" % store[record.key], record.key.encode())

    stop_in_the_next_commit(trigger)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, app.stop)
    reporting = asyncio.create_task(report(app))
    try:
        await app.run()
    finally:
        reporting.cancel()


logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
logging.getLogger("aiokafka").setLevel(logging.ERROR)
asyncio.run(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3]))
