"""Counts keys until it gets SIGTERM or is killed; see test_streams_app.py.

    python streams_instance.py SOURCE TARGET OPTIONS

OPTIONS are StreamsApp's options in JSON. Prints a line whenever its tasks change, such as
{"0_0": "running", "0_1": "standby"}.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys

from kafkaclient.errors import KafkaError
from kafkaclient.streams import StreamsApp


async def report(app: StreamsApp) -> None:
    printed = None
    while True:
        tasks = {str(found.task): found.state.value for found in app.tasks()}
        if tasks != printed:
            print(json.dumps(tasks), flush=True)
            printed = tasks
        await asyncio.sleep(0.02)


async def main(source: str, target: str, options: str) -> None:
    app = StreamsApp(**json.loads(options))

    @app.processor(source, store="counts")
    async def count(record, store, emit) -> None:
        number = int(store.get(record.key) or 0) + 1
        store[record.key] = b"%d" % number
        await emit(target, b"%d" % number, record.key)

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, app.stop)
    reporting = asyncio.create_task(report(app))
    try:
        await app.run()
    finally:
        reporting.cancel()


logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
logging.getLogger("aiokafka").setLevel(logging.ERROR)
try:
    asyncio.run(main(*sys.argv[1:]))
except KafkaError as error:
    sys.exit(f"{type(error).__name__}: {error}")
