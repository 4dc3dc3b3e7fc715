"""How many calls one record makes, and through how many files: ``python -m benchmarks.call_path``.

A warm producer (late binding, linger 0) on three in-memory brokers sends one record that opens a
batch, and awaits it. Counted are the calls of functions of ``kafkaclient``, but for the in-memory
cluster and for functions in C alone, from ``send`` to the awaiting task's next step. For this the
package is compiled once more, in a temporary folder, so that the profiler sees the calls of
compiled code; that takes a minute.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["count_calls", "main"]

_ROOT = Path(__file__).parents[1]


async def count_calls() -> Counter[tuple[str, str]]:
    """Calls by (file, function), in a package that was compiled with KAFKACLIENT_PROFILE=1."""
    from kafkaclient import Producer  # noqa: PLC0415 - the package is another one there
    from kafkaclient.testing.fake import FakeCluster  # noqa: PLC0415

    calls: Counter[tuple[str, str]] = Counter()

    def file_of(frame: FrameType) -> str:
        _, found, file = frame.f_code.co_filename.rpartition("kafkaclient/")
        # A .pxd has the C attributes that Python code reads.
        return file if found and not file.endswith(".pxd") else ""

    def is_broker(frame: FrameType | None) -> bool:
        """Whether the in-memory cluster makes the call, perhaps through a codec."""
        while frame is not None and file_of(frame).startswith("wire/"):
            frame = frame.f_back
        return frame is not None and file_of(frame).startswith("testing/")

    def profile(frame: FrameType, event: str, _arg: Any) -> None:
        file = file_of(frame) if event == "call" else ""
        if file and not is_broker(frame):
            calls[file, frame.f_code.co_name] += 1

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


def _show(top: int) -> None:
    calls = asyncio.run(count_calls())
    print(f"{calls.total()} calls, {len(calls)} functions, {len({f for f, _ in calls})} files")
    for (file, function), count in calls.most_common(top):
        print(f"{count:5} {file}:{function}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, epilog="example: %(prog)s --top 40")
    parser.add_argument("--top", type=int, default=0, help="show the N functions called most")
    parser.add_argument("--compiled", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.compiled:
        _show(arguments.top)
        return
    with TemporaryDirectory() as folder:
        for name in ("kafkaclient", "release", "benchmarks"):
            ignored = shutil.ignore_patterns("*.so", "*.c", "__pycache__", "results")
            shutil.copytree(_ROOT / name, Path(folder) / name, ignore=ignored)
        for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(_ROOT / name, folder)
        environment = os.environ | {"KAFKACLIENT_PROFILE": "1", "PYTHONPATH": folder}
        build = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
        subprocess.run(build, cwd=folder, env=environment, check=True, stderr=subprocess.DEVNULL)
        count = [sys.executable, "-m", "benchmarks.call_path", "--compiled"]
        subprocess.run(
            [*count, "--top", str(arguments.top)], cwd=folder, env=environment, check=True
        )


if __name__ == "__main__":
    main()
