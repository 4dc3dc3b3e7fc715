"""An instance of the same application in Quix Streams: ``python quix_worker.py``.

Imports nothing of this project, because it runs in another environment. Reads its options as a line
of JSON from stdin. Stops after SIGTERM, or when stdin ends.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from importlib import import_module
from typing import Any


def _main(options: dict[str, Any]) -> None:
    quix = import_module("quixstreams")
    settings = options["app"]
    app = quix.Application(
        broker_address=settings["bootstrap_servers"],
        consumer_group=settings["application_id"],
        state_dir=settings["state_dir"],
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        commit_interval=0.1,
        consumer_extra_config={
            "session.timeout.ms": settings["session_timeout_ms"],
            "heartbeat.interval.ms": settings["heartbeat_interval_ms"],
        },
        loglevel="WARNING",
    )
    [[source_name, target_name, _]] = options["processors"]
    source = app.topic(source_name, value_deserializer="bytes", key_deserializer="bytes")
    target = app.topic(target_name, value_serializer="bytes", key_serializer="bytes")
    padding = "x" * options["value_size"]

    def count(_value: bytes, state: Any) -> bytes:
        number = state.get("counted", [0, ""])[0] + 1
        state.set("counted", [number, padding])
        return b"%d" % number

    frame = app.dataframe(source).apply(count, stateful=True).to_topic(target)

    def end_with_stdin() -> None:
        sys.stdin.read()
        os.kill(os.getpid(), 15)

    threading.Thread(target=end_with_stdin, daemon=True).start()
    app.run(frame)


if __name__ == "__main__":
    _main(json.loads(sys.stdin.readline()))
