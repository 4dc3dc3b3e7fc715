"""The process of one client's load, as the campaign sees it."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from experiments.chaos.worker import End, Sample
from kafkaclient.errors import KafkaError

if TYPE_CHECKING:
    from experiments.chaos.streams import Spec

__all__ = ["WorkerProcess"]

_WORKER = "experiments.chaos.worker"
_LOG_BYTES = 4000  # of the process's log, in an error message
_LINE_BYTES = 1 << 22


@dataclass(slots=True)
class WorkerProcess:
    """``await run()`` makes a client's load in a process; ``samples`` grow meanwhile.

    Call :meth:`begin` once ``ready`` is set. Raises KafkaError if the process ends without a
    result. A cancellation kills the process.
    """

    spec: Spec
    samples: list[Sample] = field(default_factory=list)
    end: End | None = None
    log: str = ""
    """What the process wrote to stderr: the client's warnings, and tracebacks."""
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    _process: asyncio.subprocess.Process | None = None

    def begin(self, at: float) -> None:
        """Have the load begin ``at`` this time of ``time.monotonic``."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(at).encode() + b"\n")
        self._process.stdin.close()

    async def run(self) -> End:
        process = self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", _WORKER),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=_LINE_BYTES,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        reading = asyncio.create_task(process.stderr.read())
        try:
            process.stdin.write(json.dumps(self.spec.as_json()).encode() + b"\n")
            async for line in process.stdout:
                self._take(line)
            await process.wait()
            self.log = (await reading).decode("utf-8", "replace").strip()
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
            reading.cancel()
        if self.end is None:
            raise KafkaError(
                f"the load of {self.spec.client} ended with status {process.returncode} and no "
                f"result; it wrote: {self.log[-_LOG_BYTES:] or 'nothing'}"
            )
        return self.end

    def _take(self, line: bytes) -> None:
        fact = json.loads(line)
        if "sample" in fact:
            self.samples.append(Sample(**fact["sample"]))
        elif "ready" in fact:
            self.ready.set()
        else:
            self.end = End(**fact["end"])
