"""``make aiokafka-tests AIOKAFKA=<checkout or bare repository>``: aiokafka's own producer tests.

Extracts ``tests/`` of aiokafka 0.14.0 from the repository into build/aiokafka-tests, and runs the
tests there on one local broker, with the drop-in in place of aiokafka's producer. Compares the
outcomes with the tables of docs/aiokafka-tests.md; the exit status is 1 if an outcome differs.
``PRODUCER=aiokafka`` runs aiokafka's producer, which must pass every test. Arguments after the
repository are test files, or options of pytest.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path
from xml.etree import ElementTree

from integration.aiokafka_tests.page import PAGE, disagreements, rows

COMMIT = "672947afe85c91b7d953f0259e69837a711d3246"  # the tag v0.14.0
FILES = ("test_producer.py", "test_transactional_producer.py", "test_pep492.py")

_HERE = Path(__file__).parent
_ROOT = _HERE.parents[1]
_BUILD = _ROOT / "build" / "aiokafka-tests"
_STUCK_S = 25  # pytest then prints all stacks; a signal of pytest-timeout is lost in callbacks
_TIMEOUT_S = 150


def main(repository: str, arguments: list[str]) -> int:
    if not repository:
        print("aiokafka-tests: skipped, AIOKAFKA=<checkout or bare repository> is not given")
        return 0
    extract(repository)
    report = _BUILD / "report.xml"
    options = [argument for argument in arguments if argument.startswith("-")]
    files = [argument for argument in arguments if argument not in options] or list(FILES)
    command = [
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
        *("-o", f"faulthandler_timeout={_STUCK_S}", f"--timeout={_TIMEOUT_S}"),
        *("--timeout-method=thread", f"--junit-xml={report}", *options),
        *(f"tests/{file}" for file in files),
    ]
    environment = os.environ | {"PYTHONPATH": str(_ROOT)}
    subprocess.run(command, cwd=_BUILD, env=environment, check=False)
    return judge(report)


def extract(repository: str) -> None:
    """``tests/`` of the commit, with this package's conftest.py and pytest.ini."""
    command = ["git", "-C", repository, "archive", COMMIT, "tests"]
    archive = subprocess.run(command, capture_output=True, check=False)
    if archive.returncode:
        reason = archive.stderr.decode("utf-8", "replace").strip()
        sys.exit(f"aiokafka-tests: {repository} has no commit {COMMIT[:7]}: {reason}")
    shutil.rmtree(_BUILD, ignore_errors=True)
    _BUILD.mkdir(parents=True)
    with tarfile.open(fileobj=BytesIO(archive.stdout)) as tar:
        tar.extractall(_BUILD, filter="data")
    shutil.copy(_HERE / "fixtures.py", _BUILD / "tests" / "conftest.py")
    shutil.copy(_HERE / "pytest.ini", _BUILD)


def judge(report: Path) -> int:
    """Compare pytest's report with the page, and print what differs."""
    if not report.exists():
        print("aiokafka-tests: pytest wrote no report")
        return 1
    drop_in = os.environ.get("PRODUCER") != "aiokafka"
    passed = read_report(report.read_text("utf-8"))
    wrong = disagreements(rows(PAGE.read_text("utf-8")), passed, drop_in=drop_in)
    producer = "the drop-in" if drop_in else "aiokafka's producer"
    print(f"aiokafka-tests: {sum(passed.values())} of {len(passed)} passed with {producer}")
    for line in wrong:
        print(f"aiokafka-tests: {line}")
    return 1 if wrong or not passed else 0


def read_report(text: str) -> dict[tuple[str, str], bool]:
    """(module, test) -> whether the test passed, from JUnit XML. A skipped test is left out."""
    found: dict[tuple[str, str], bool] = {}
    for case in ElementTree.fromstring(text).iter("testcase"):  # noqa: S314 - pytest wrote it
        if case.find("skipped") is None:
            module = case.get("classname", "").split(".")[1]
            good = case.find("failure") is None and case.find("error") is None
            key = (module, case.get("name", ""))
            found[key] = found.get(key, True) and good
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "", sys.argv[2:]))
