"""A query that copies a topic, to be killed: bootstrap, source, sink, checkpoint, life, prefix.

The prefix is that of transactional ids."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import Any

from kafkaclient.spark import spark_session


def fail_at_times(batches: Any) -> Any:
    """The first attempt of every other task fails when half of its rows have been taken."""
    from pyspark import TaskContext  # noqa: PLC0415 - on the worker

    context = TaskContext.get()
    assert context is not None
    doomed = context.attemptNumber() == 0 and context.taskAttemptId() % 4 == 1
    for number, batch in enumerate(batches):
        if doomed and number == 1:
            raise RuntimeError("an attempt fails")
        yield batch
    if doomed:
        raise RuntimeError("an attempt fails")


def main(bootstrap: str, source: str, sink: str, checkpoint: str, life: str, prefix: str) -> None:
    spark = spark_session("victim", "local[2,3]", {"spark.sql.shuffle.partitions": "2"})
    options = {"kafka.bootstrap.servers": bootstrap}
    frame = (
        spark.readStream.format("kafkaclient")
        .options(**options, subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=500)
        .load()
        .select("value")
        .repartition(1 + int(life) % 3)
        .mapInArrow(fail_at_times, "value binary")
    )
    query = (
        frame.writeStream.format("kafkaclient")
        .options(**options, topic=sink, checkpointLocation=checkpoint)
        .options(exactlyOnce="true", transactionalIdPrefix=prefix)
        .trigger(availableNow=True)
        .start()
    )

    parent = os.getppid()

    def tell() -> None:
        told = -1
        while query.isActive:
            if os.getppid() != parent:  # the test is gone
                os.killpg(0, signal.SIGKILL)
            last = query.lastProgress
            if last is not None and last["batchId"] > told:
                told = last["batchId"]
                print("batch", told, flush=True)
            time.sleep(0.2)

    threading.Thread(target=tell, daemon=True).start()
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
