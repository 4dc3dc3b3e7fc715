"""Fuzz the decoders, guided by coverage: ``python -m fuzz.run --inputs 1000000``.

Each target is run by atheris (libFuzzer for Python) in a process of its own. It looks into what is
interpreted; what is compiled is shown the same bytes. An input that takes
more than ten seconds, or more memory than is granted, counts as a defect like an exception does.
"""

from __future__ import annotations

import argparse
import re
import resource
import subprocess
import sys
import time
from pathlib import Path

from fuzz import corpus

_LONGEST = 4096
"""Bytes of an input. The decoders look no further into longer ones than into these."""
_SECONDS_PER_INPUT = 10
_MEMORY = 800 << 20
"""Bytes that a target may take; decompression may need the plain and the packed 256 MB at once."""
_KEPT = 300
"""The most inputs kept of a target."""


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--inputs", type=int, default=1_000_000, help="over all targets together")
    options.add_argument("--target", action="append", help="only this one; may be repeated")
    options.add_argument("--out", type=Path, default=Path("build/fuzz"))
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--keep", action="store_true", help="take new inputs up in fuzz/inputs")
    options.add_argument("--run", help=argparse.SUPPRESS)
    given, rest = options.parse_known_args()
    if given.run:
        return _run(given.run, rest)
    from fuzz.targets import TARGETS  # noqa: PLC0415 - not before atheris in the other process

    targets = given.target or list(TARGETS)
    share = given.inputs // len(targets)
    failed = [t for t in targets if not _fuzz(t, share, given.out, given.seed, given.keep)]
    if failed:
        print(f"defects in: {', '.join(failed)}; the inputs are in {given.out}")
    return bool(failed)


def _fuzz(target: str, inputs: int, out: Path, seed: int, keep: bool) -> bool:
    from fuzz.seeds import seeds  # noqa: PLC0415 - as above

    grown = out / target
    grown.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(corpus.read(target) or seeds(target)):
        (grown / f"known-{number}").write_bytes(data)
    started = time.monotonic()
    done = _child(
        target,
        grown,
        f"-runs={inputs}",
        f"-seed={seed}",
        f"-max_len={_LONGEST}",
        f"-timeout={_SECONDS_PER_INPUT}",
        "-rss_limit_mb=0",  # the process has a limit of its own
        "-print_final_stats=1",
        f"-artifact_prefix={out}/{target}-",
    )
    tried = re.search(r"stat::number_of_executed_units: (\d+)", done.stderr)
    print(
        f"{target}: {tried[1] if tried else '?'} inputs in {time.monotonic() - started:.0f} s,",
        "defect" if done.returncode else "no defect",
        flush=True,
    )
    if done.returncode:
        print(done.stdout[-4000:], done.stderr[-4000:], sep="\n")
    elif keep:
        smallest = sorted((path.read_bytes() for path in grown.iterdir()), key=len)
        corpus.write(target, smallest[:_KEPT])
    return not done.returncode


def _child(target: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fuzz.run", "--run", target, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _run(target: str, arguments: list[str]) -> int:
    import atheris  # noqa: PLC0415 - the unit tests do without

    with atheris.instrument_imports(include=["kafkaclient", "kafka.protocol"]):
        from fuzz.targets import TARGETS  # noqa: PLC0415

    _limit_memory()
    atheris.Setup([sys.argv[0], *arguments], TARGETS[target])
    atheris.Fuzz()
    return 0


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + _MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


if __name__ == "__main__":
    sys.exit(main())
