"""``make wheel-test``: an sdist, from it a wheel for every Python found, and tests of the wheels.

Each wheel is installed twice: alone, where ``smoke_test.py`` sends records, and beside all pinned
libraries, where the unit tests and a slice on real brokers run. Tests run in a copy of the sdist
without the package, so that only the installed wheel can be imported.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parents[1]
WANTED = ("3.11", "3.12", "3.13", "3.14")
PACKAGES = ("kafkaclient", "pyspark_kafkaclient", "pytest_kafkaclient", "setup.py", "MANIFEST.in")
LARGEST_MB = 3.9
"""gcc 12 makes 3.6 and gcc 16 3.8, two thirds of it extensions; with debug information ten times as
much."""
MOST_PACKAGES = 4
PYTEST = ("-q", "-n", "3", "--max-worker-restart=0", "-p", "no:cacheprovider")
OF_THE_SOURCES = ("tests/docsite", "tests/test_docs.py", "tests/test_extensions.py")
UNIT = ("--timeout-method=thread", *(f"--ignore={path}" for path in OF_THE_SOURCES))
SLICE = ("-m", "not full", "--dist", "loadfile")


@dataclass
class Outcome:
    """What was found out about one Python's wheel."""

    python: str
    version: str = ""
    wheel_mb: float = 0.0
    build_s: float = 0.0
    core: list[str] = field(default_factory=list)
    smoke: str = "not run"
    unit: str = "not run"
    unit_s: float = 0.0
    brokers: str = "not run"
    failed: list[str] = field(default_factory=list)


def main() -> int:
    """Exit status 1 if anything failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "wheel-test")
    parser.add_argument("--uv", default=shutil.which("uv") or "uv")
    parser.add_argument("--unit", default="tests", help="paths for pytest; empty: none")
    parser.add_argument("--slice", default="integration", help="paths for pytest; empty: none")
    options = parser.parse_args()
    out: Path = options.out.resolve()
    uv = str(Path(options.uv).resolve())
    os.environ.pop("PYTHONPATH", None)  # a source tree there would be tested, not the wheel
    pythons = find_pythons(os.environ.get("PYTHONS", "").split())
    sys.stderr.write(f"Pythons: {', '.join(map(str, pythons.values()))}\n")
    out.mkdir(parents=True, exist_ok=True)
    sdist = build_sdist(uv, out / "dist")
    tree = test_tree(sdist, out / "tree")
    outcomes = []
    for name, python in pythons.items():
        outcome = Outcome(name)
        try:
            test_wheel(outcome, uv, python, sdist, tree, out / name, options)
        except subprocess.CalledProcessError as error:
            outcome.failed.append(f"{' '.join(map(str, error.cmd))[:200]}: exit {error.returncode}")
        (out / f"{name}.json").write_text(json.dumps(asdict(outcome), indent=1) + "\n")
        outcomes.append(outcome)
    sys.stdout.write(table(outcomes))
    for outcome in outcomes:
        sys.stdout.writelines(f"{outcome.python}: {line}\n" for line in outcome.failed)
    return int(any(outcome.failed for outcome in outcomes))


def find_pythons(wanted: list[str]) -> dict[str, Path]:
    """By version: those named by paths in PYTHONS, else all on the PATH and of pyenv."""
    candidates = [Path(found) for name in wanted if (found := shutil.which(name))]
    if wanted and len(candidates) < len(wanted):
        raise SystemExit(f"PYTHONS={' '.join(wanted)}: not all of these can be run")
    if not wanted:
        on_path = (shutil.which(f"python{version}") for version in WANTED)
        pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
        candidates = [Path(found) for found in on_path if found]
        candidates += sorted(pyenv.glob("versions/*/bin/python3"))
    ask = "import sys, sysconfig; print('%d.%d' % sys.version_info[:2] + "
    ask += "('t' if sysconfig.get_config_var('Py_GIL_DISABLED') else ''))"
    versions: dict[str, Path] = {}
    for python in candidates:
        done = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=False)
        if done.returncode == 0 and (wanted or done.stdout.strip() in WANTED):
            versions.setdefault(done.stdout.strip(), python)
    if not versions:
        raise SystemExit(f"no Python of {', '.join(WANTED)} found; name some in PYTHONS")
    return dict(sorted(versions.items()))


def build_sdist(uv: str, folder: Path, root: Path = ROOT) -> Path:
    """The one sdist of which all wheels are made."""
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([uv, "build", "--quiet", "--sdist", "--out-dir", folder, root], check=True)
    (sdist,) = folder.glob("*.tar.gz")
    return sdist


def build_wheel(uv: str, python: Path, source: Path, folder: Path, **variables: str) -> Path:
    """A wheel of an sdist or of a source tree, built with more environment variables."""
    subprocess.run(
        [uv, "build", "--quiet", "--wheel", "--python", python, "--out-dir", folder, source],
        env={**os.environ, **variables},
        check=True,
    )
    (wheel,) = folder.glob("*.whl")
    return wheel


def test_tree(sdist: Path, folder: Path) -> Path:
    """The sdist's tests, docs and examples, without what a wheel installs."""
    shutil.rmtree(folder, ignore_errors=True)
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (tree,) = folder.iterdir()
    for name in PACKAGES:
        path = tree / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return tree


def test_wheel(
    outcome: Outcome,
    uv: str,
    python: Path,
    sdist: Path,
    tree: Path,
    folder: Path,
    options: argparse.Namespace,
) -> None:
    """Build, install and test one wheel. Raises CalledProcessError if a step does not end well."""
    shutil.rmtree(folder, ignore_errors=True)
    begun = time.monotonic()
    wheel = build_wheel(uv, python, sdist, folder)
    outcome.build_s = round(time.monotonic() - begun, 1)
    outcome.wheel_mb = round(wheel.stat().st_size / 1e6, 2)
    if outcome.wheel_mb > LARGEST_MB:
        outcome.failed.append(f"the wheel has {outcome.wheel_mb} MB, not at most {LARGEST_MB}")

    outcome.core, said, failed = try_alone(uv, python, wheel, tree, folder / "alone")
    outcome.smoke = "sends" if said else "fails"
    outcome.version = said.partition(":")[0]
    outcome.failed += failed

    full = environment(uv, python, folder / "full")
    pins = ["--require-hashes", "-r", str(tree / "constraints.txt")]
    subprocess.run([uv, "pip", "install", "--quiet", "--python", full, *pins], check=True)
    subprocess.run(
        [uv, "pip", "install", "--quiet", "--python", full, "--no-deps", wheel], check=True
    )
    if options.unit:
        begun = time.monotonic()
        paths = options.unit.split()
        outcome.unit = pytest(outcome, full, tree, folder / "unit.log", (*UNIT, *paths))
        outcome.unit_s = round(time.monotonic() - begun)
    if options.slice:
        paths = options.slice.split()
        outcome.brokers = pytest(outcome, full, tree, folder / "brokers.log", (*SLICE, *paths))


def try_alone(
    uv: str, python: Path, wheel: Path, tree: Path, folder: Path
) -> tuple[list[str], str, list[str]]:
    """Install a wheel without anything else, and send records.

    Returns the packages that the wheel brings, what the smoke test prints, and what failed.
    """
    alone = environment(uv, python, folder)
    subprocess.run([uv, "pip", "install", "--quiet", "--python", alone, wheel], check=True)
    listed = subprocess.run(
        [uv, "pip", "list", "--python", alone, "--format", "json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    core = [p["name"] for p in json.loads(listed.stdout) if p["name"] != "kafkaclient"]
    failed = [f"the core brings {', '.join(core)}"] if len(core) > MOST_PACKAGES else []
    smoke = [str(alone), "-I", str(tree / "release" / "smoke_test.py")]
    done = subprocess.run(smoke, capture_output=True, text=True, check=False)
    if done.returncode:
        failed.append(f"smoke test: {done.stderr[-300:]}")
    return core, "" if done.returncode else done.stdout.strip(), failed


def environment(uv: str, python: Path, folder: Path) -> Path:
    """A new environment; its Python."""
    subprocess.run([uv, "venv", "--quiet", "--python", python, folder], check=True)
    return folder / "bin" / "python"


def pytest(
    outcome: Outcome, python: Path, tree: Path, log: Path, arguments: tuple[str, ...]
) -> str:
    """The counts of a run of pytest, such as ``"10 passed, 1 skipped"``. Its output is in ``log``.

    ``-P`` keeps the current folder from ``sys.path``.
    """
    with log.open("w") as file:
        done = subprocess.run(
            [python, "-P", "-m", "pytest", *PYTEST, *arguments],
            cwd=tree,
            env={**os.environ, "HYPOTHESIS_PROFILE": "quick"},
            stdout=file,
            stderr=subprocess.STDOUT,
            check=False,
        )
    counts = re.findall(r"\d+ (?:passed|failed|skipped|errors?|xfailed)", last_line(log))
    if done.returncode:
        found = re.findall(r"^(?:FAILED|ERROR) (\S+)", log.read_text(), re.MULTILINE)
        outcome.failed += found or [f"pytest's exit status {done.returncode}: {log}"]
    return ", ".join(counts) or "nothing"


def last_line(log: Path) -> str:
    """The last line of pytest's output, which has the counts."""
    lines = [line for line in log.read_text().splitlines() if re.search(r"\d+ \w+ in ", line)]
    return lines[-1] if lines else ""


def table(outcomes: list[Outcome]) -> str:
    """A Markdown table, one row for each Python."""
    head = ("Python", "wheel MB", "build s", "core brings", "alone", "unit tests", "s", "brokers")
    rows = [
        (
            o.version or o.python,
            f"{o.wheel_mb:.2f}",
            f"{o.build_s:.0f}",
            f"{len(o.core)} packages",
            o.smoke,
            o.unit,
            f"{o.unit_s:.0f}",
            o.brokers,
        )
        for o in outcomes
    ]
    return markdown(head, rows)


def markdown(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
