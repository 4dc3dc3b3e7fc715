"""A load through many producers on this machine, each in its own process, which start together."""

from __future__ import annotations

import asyncio
import os
import signal
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from threading import Thread
from typing import TYPE_CHECKING

from kafkaclient.errors import ConfigError, KafkaError
from kafkaclient.event_loop import loop_factory
from kafkaclient.perf.shared_load import all_runs, run_plan

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.synchronize import Barrier

    from kafkaclient.perf.run import Run
    from kafkaclient.perf.shared_load import ProducerPlan

_together: Barrier | None = None
"""In a producer's process: where it waits until all processes have started."""


def run_in_processes(plans: Sequence[ProducerPlan]) -> list[Run]:
    """Run each plan in a new process, which has an event loop and a client; all start together.
    The processes end at once when this process is interrupted or dies.

    Raises KafkaError or ConfigError for the first plan that failed.
    """
    context = get_context("spawn")  # a fork would inherit threads' locks
    barrier = context.Barrier(len(plans))
    # Nothing is written. The processes see when the last writer, this process, has closed it.
    reader, writer = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(len(plans), context, _prepare, (barrier, reader))
    with reader, pool:
        try:
            # No process is free for a second plan before all have reached the barrier.
            return all_runs(pool.map(_work, plans))
        except BrokenProcessPool as error:
            raise KafkaError("a producer's process was killed, so the load was given up") from error
        except BaseException:
            writer.close()
            raise


def _prepare(barrier: Barrier, parent: Connection) -> None:
    global _together  # noqa: PLW0603 - the only way to hand a barrier to the pool's processes
    _together = barrier
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent as well
    Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: Connection) -> None:
    parent.poll(None)  # until the pipe is closed
    os._exit(1)


def _work(plan: ProducerPlan) -> Run | KafkaError:
    assert _together is not None
    _together.wait()
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(run_plan(plan))
    except ConfigError as error:
        return ConfigError(str(error))
    except (KafkaError, OSError) as error:
        return KafkaError(str(error))  # not every error can be pickled
