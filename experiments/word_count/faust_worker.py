"""The word count in faust-streaming: ``python faust_worker.py``.

Imports nothing of this project, because it runs in another environment. Reads its options as a line
of JSON from stdin. Stops after SIGTERM, or when stdin ends.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from importlib import import_module
from typing import Any


def _main(options: dict[str, Any]) -> None:
    faust: Any = import_module("faust")
    application, partitions = options["application_id"], options["partitions"]
    app = faust.App(
        application,
        broker=f"kafka://{options['bootstrap_servers']}",
        store=options["store"],
        datadir=options["state_dir"],
        topic_partitions=partitions,
        topic_replication_factor=1,
        topic_disable_leader=True,
        consumer_auto_offset_reset="earliest",
        stream_wait_empty=False,
        web_enabled=False,
    )
    lines = app.topic(options["topic"], value_type=str, value_serializer="raw")
    words = app.topic(
        f"{application}-words",
        key_type=str,
        value_type=str,
        key_serializer="raw",
        value_serializer="raw",
        partitions=partitions,
        internal=True,
    )
    counts = app.Table("counts", default=int, partitions=partitions, key_type=str, value_type=int)

    @app.agent(lines)  # type: ignore[untyped-decorator]
    async def split(stream: Any) -> None:
        async for line in stream:
            for word in line.split():
                await words.send(key=word, value=word)

    @app.agent(words)  # type: ignore[untyped-decorator]
    async def count(stream: Any) -> None:
        async for word in stream:
            counts[word] += 1

    def end_with_stdin() -> None:
        sys.stdin.read()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=end_with_stdin, daemon=True).start()
    faust.Worker(app, loglevel="WARNING").execute_from_commandline()


if __name__ == "__main__":
    _main(json.loads(sys.stdin.readline()))
