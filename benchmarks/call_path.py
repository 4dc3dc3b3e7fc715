"""How many calls one record makes, and through how many files: ``python -m benchmarks.call_path``.

A warm producer (late binding, linger 0, pure Python) on three in-memory brokers sends one record
that opens a batch, and awaits it. Counted are the calls of Python functions of ``kafkaclient``, but
for the in-memory cluster, from ``send`` to the awaiting task's next step.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["count_calls", "main"]

os.environ.setdefault("KAFKACLIENT_PURE_PYTHON", "1")  # compiled calls are not seen


async def count_calls() -> Counter[tuple[str, str]]:
    """Calls by (file, function)."""
    import kafkaclient  # noqa: PLC0415 - after the environment is set
    from kafkaclient import Producer  # noqa: PLC0415
    from kafkaclient.testing.fake import FakeCluster  # noqa: PLC0415

    package = Path(kafkaclient.__file__).parent
    calls: Counter[tuple[str, str]] = Counter()

    def file_of(frame: FrameType) -> str:
        path = Path(frame.f_code.co_filename)
        return str(path.relative_to(package)) if path.is_relative_to(package) else ""

    def is_broker(frame: FrameType | None) -> bool:
        """Whether the in-memory cluster makes the call, perhaps through a codec."""
        while frame is not None and file_of(frame).startswith("wire/"):
            frame = frame.f_back
        return frame is not None and file_of(frame).startswith("testing/")

    def profile(frame: FrameType, event: str, _arg: Any) -> None:
        file = file_of(frame) if event == "call" else ""
        if file and not is_broker(frame):
            calls[file, frame.f_code.co_qualname] += 1

    fake = FakeCluster(3)
    fake.create_topic("t", assignments=[(0,), (1,), (2,)])
    async with Producer(fake.bootstrap, dialer=fake) as producer:
        for _ in range(50):
            await (await producer.send("t", b"x" * 100))
            await asyncio.sleep(0)
        await asyncio.sleep(0.05)
        sys.setprofile(profile)
        await (await producer.send("t", b"x" * 100))
        sys.setprofile(None)
    return calls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, epilog="example: %(prog)s --top 40")
    parser.add_argument("--top", type=int, default=0, help="show the N functions called most")
    arguments = parser.parse_args()
    calls = asyncio.run(count_calls())
    print(f"{calls.total()} calls, {len(calls)} functions, {len({f for f, _ in calls})} files")
    for (file, function), count in calls.most_common(arguments.top):
        print(f"{count:5} {file}:{function}")


if __name__ == "__main__":
    main()
