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
from typing import Any

from kafkaclient.errors import KafkaError
from kafkaclient.streams import StreamsApp

__all__: list[str] = []


async def _main(options: dict[str, Any]) -> None:
    application = options["application_id"]
    words = f"{application}-words"
    app = StreamsApp(
        options["bootstrap_servers"],
        application_id=application,
        state_dir=options["state_dir"],
        processing_guarantee="exactly_once_v2",
    )

    @app.processor(options["topic"], store="nothing")
    async def split(record: Any, store: Any, emit: Any) -> None:
        for word in record.value.split():
            await emit(words, b"", word)

    @app.processor(words, store="counts")
    async def count(record: Any, store: Any, emit: Any) -> None:
        store.put(record.key, b"%d" % (int(store.get(record.key) or 0) + 1))

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
