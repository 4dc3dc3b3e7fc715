"""Worker processes: one for each client's load, watched from here."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafkaclient.errors import KafkaError
from kafkaclient.experiments.chaos.worker import End, Sample

if TYPE_CHECKING:
    from kafkaclient.experiments.chaos.streams import Spec

__all__ = ["Worker"]

_WORKER = "kafkaclient.experiments.chaos.worker"
_TOLD_BYTES = 4000
_LINE_BYTES = 1 << 22


@dataclass(slots=True)
class Worker:
    """``await run()`` returns when the load is over; ``samples`` grow meanwhile.

    The load begins when :meth:`begin` is called; ``ready`` is set when it can be. Cancelled, it
    ends its process. Raises KafkaError when the process ends without a result.
    """

    spec: Spec
    samples: list[Sample] = field(default_factory=list)
    end: End | None = None
    complaints: str = ""
    """What it wrote to stderr: what the client logs as a warning, and whatever nobody caught."""
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    _process: asyncio.subprocess.Process | None = None

    def begin(self, at: float) -> None:
        """Let the load begin at this time of ``time.monotonic``."""
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
        complaints = asyncio.create_task(process.stderr.read())
        try:
            process.stdin.write(json.dumps(self.spec.as_json()).encode() + b"\n")
            async for line in process.stdout:
                self._take(line)
            await process.wait()
            told = (await complaints).decode("utf-8", "replace").strip()
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
            complaints.cancel()
        if self.end is None:
            raise KafkaError(
                f"the load of {self.spec.client} ended with status {process.returncode} and no "
                f"result; it wrote: {told[-_TOLD_BYTES:] or 'nothing'}"
            )
        self.complaints = told
        return self.end

    def _take(self, line: bytes) -> None:
        fact = json.loads(line)
        if "sample" in fact:
            self.samples.append(Sample(**fact["sample"]))
        elif "ready" in fact:
            self.ready.set()
        else:
            self.end = End(**fact["end"])
