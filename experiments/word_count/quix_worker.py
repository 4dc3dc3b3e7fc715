"""The word count in Quix Streams: ``python quix_worker.py``.

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
    quix = import_module("quixstreams")
    app = quix.Application(
        broker_address=options["bootstrap_servers"],
        consumer_group=options["application_id"],
        state_dir=options["state_dir"],
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        commit_interval=1.0,
        loglevel="WARNING",
    )
    lines = app.topic(options["topic"], key_deserializer="bytes", value_deserializer="str")

    def count(_word: str, state: Any) -> int:
        number: int = state.get("count", 0) + 1
        state.set("count", number)
        return number

    (
        app.dataframe(lines)
        .apply(lambda line: line.split(), expand=True)
        .group_by(
            lambda word: word,
            name="word",
            key_serializer="str",
            key_deserializer="str",
            value_serializer="str",
            value_deserializer="str",
        )
        .apply(count, stateful=True)
    )

    def end_with_stdin() -> None:
        sys.stdin.read()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=end_with_stdin, daemon=True).start()
    app.run()


if __name__ == "__main__":
    _main(json.loads(sys.stdin.readline()))
