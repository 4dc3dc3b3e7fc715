"""``make aiokafka-tests AIOKAFKA=<checkout or bare repository>``: aiokafka's own producer tests.

Extracts ``tests/`` of aiokafka 0.14.0 from the repository into build/aiokafka-tests, and runs the
tests there on one local broker, with the drop-in in place of aiokafka's producer. Compares the
outcomes with the tables of docs/figures/aiokafka-tests.md; the exit status is 1 if an outcome
differs, or if a test of a table did not run although the arguments do not leave it out.
``PRODUCER=aiokafka`` runs aiokafka's producer, which must pass every test. Arguments after the
repository are test files (``test_x.py``, ``test_x.py::Class::test``), or options of pytest.
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

from integration.aiokafka_tests.page import PAGE, counts, disagreements, missing, rows

COMMIT = "672947afe85c91b7d953f0259e69837a711d3246"  # the tag v0.14.0
FILES = ("test_producer.py", "test_transactional_producer.py", "test_pep492.py")

_HERE = Path(__file__).parent
_ROOT = _HERE.parents[1]
_BUILD = _ROOT / "build" / "aiokafka-tests"
_STUCK_S = 25  # pytest then prints all stacks; a signal of pytest-timeout is lost in callbacks
_TIMEOUT_S = 150
_RAN = (0, 1)  # pytest's exit statuses after it has run all tests: all have passed, or some failed
_SELECTING = ("-k", "-m", "--deselect", "--ignore")  # options of pytest that leave tests out


def main(repository: str, arguments: list[str]) -> int:
    if not repository:
        print("aiokafka-tests: skipped, AIOKAFKA=<checkout or bare repository> is not given")
        return 0
    extract(repository)
    report = _BUILD / "report.xml"
    files, options = split(arguments)
    command = [
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
        *("-o", f"faulthandler_timeout={_STUCK_S}", f"--timeout={_TIMEOUT_S}"),
        *("--timeout-method=thread", f"--junit-xml={report}", *options),
        *(f"tests/{file}" for file in files),
    ]
    environment = os.environ | {"PYTHONPATH": str(_ROOT)}
    done = subprocess.run(command, cwd=_BUILD, env=environment, check=False)
    return judge(report, done.returncode, whole_modules(files, options))


def split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """(test files, options of pytest with their values) of the command's arguments."""
    files = [each for each in arguments if each.partition("::")[0].endswith(".py")]
    return files or list(FILES), [each for each in arguments if each not in files]


def whole_modules(files: list[str], options: list[str]) -> list[str]:
    """The test modules of which every test is to run: no argument selects tests among them."""
    if any(option.startswith(_SELECTING) for option in options):
        return []
    return [file.removesuffix(".py") for file in files if "::" not in file]


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


def judge(report: Path, status: int, whole: list[str]) -> int:
    """Compare pytest's report with the page, and print what differs. ``status`` is pytest's exit
    status, ``whole`` the modules of which every test was to run."""
    if not report.exists():
        print(f"aiokafka-tests: pytest wrote no report, its exit status is {status}")
        return 1
    drop_in = os.environ.get("PRODUCER") != "aiokafka"
    passed, wrong = read_report(report.read_text("utf-8"))
    text = PAGE.read_text("utf-8")
    expected = rows(text)
    wrong += disagreements(expected, passed, drop_in=drop_in)
    wrong += missing(expected, counts(text), passed, whole, drop_in=drop_in)
    if status not in _RAN:
        wrong.append(f"pytest did not run all tests, its exit status is {status}")
    producer = "the drop-in" if drop_in else "aiokafka's producer"
    print(f"aiokafka-tests: {sum(passed.values())} of {len(passed)} passed with {producer}")
    for line in wrong:
        print(f"aiokafka-tests: {line}")
    return 1 if wrong or not passed else 0


def read_report(text: str) -> tuple[dict[tuple[str, str], bool], list[str]]:
    """JUnit XML as ((module, test) -> whether the test passed, one line for each module that could
    not be collected). A skipped test is left out."""
    found: dict[tuple[str, str], bool] = {}
    uncollected = []
    for case in ElementTree.fromstring(text).iter("testcase"):  # noqa: S314 - pytest wrote it
        name, modules = case.get("name", ""), case.get("classname", "").split(".")
        error = case.find("error")
        if len(modules) < 2:  # a collection error: its name is the module's
            lines = ((None if error is None else error.text) or "no reason given").splitlines()
            uncollected.append(f"{name} could not be collected: {lines[-1].strip()}")
        elif case.find("skipped") is None:
            key = (modules[1], name)
            found[key] = found.get(key, True) and case.find("failure") is None and error is None
    return found, uncollected


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "", sys.argv[2:]))
