"""The word count of this project: ``python -m experiments.word_count.ours``.

Reads its options as a line of JSON from stdin. Stops after SIGTERM, or when stdin ends, which means
that the experiment's process is gone.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
from typing import TYPE_CHECKING, Any

from kafkaclient.errors import KafkaError
from kafkaclient.streams import Store, StreamsApp

if TYPE_CHECKING:
    from kafkaclient.streams import Emit, KeyValueStore, Record

__all__: list[str] = []


async def _main(options: dict[str, Any]) -> None:
    app = StreamsApp(
        options["bootstrap_servers"],
        application_id=options["application_id"],
        state_dir=options["state_dir"],
        processing_guarantee="exactly_once_v2",
    )

    @app.processor(options["topic"], value=str)
    async def split(record: Record[bytes | None, str], emit: Emit) -> None:
        for word in record.value.split():
            await emit("words", word, key=word)

    @app.processor("words", key=str, value=str, store=Store("counts", key=str, value=int))
    async def count(record: Record[str, str], store: KeyValueStore[str, int], emit: Emit) -> None:
        store[record.key] = store.get(record.key, 0) + 1

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, app.stop)
    loop.add_reader(sys.stdin, app.stop)  # readable means ended: nothing else is written to it
    await app.run()


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")
    try:
        asyncio.run(_main(json.loads(sys.stdin.readline())))
    except KafkaError as error:
        sys.exit(f"{type(error).__name__}: {error}")
