"""docs/how-to/testing.md: its files are pasted into an empty directory, and `pytest` is run there.

The file for real brokers runs in integration/test_testing_page.py.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.code_blocks import Block, runs, select

_ROOT = Path(__file__).parents[1]
_PAGE = "docs/how-to/testing.md"


def test_each_block_is_a_file() -> None:
    titles = [block.title for block in select(_PAGE, "python")]
    assert all(titles)
    assert titles[0] == "test_orders.py"  # the shortest test leads


@runs("docs/how-to/testing.md", without="test_real_brokers.py", together=True, name="blocks")
def test_the_files_pass_in_an_empty_directory(tmp_path: Path, blocks: list[Block]) -> None:
    """So do the tests among the examples, in a directory beside them."""
    page, examples = tmp_path / "page", tmp_path / "examples"
    page.mkdir()
    for block in blocks:
        block.write(page)
    shutil.copy(_ROOT / "examples/service.py", page)
    shutil.copytree(_ROOT / "examples", examples)
    tests = [path.read_text() for path in (*page.glob("*.py"), *examples.glob("test_*.py"))]
    expected = sum(len(re.findall(r"^(?:async )?def test_", t, re.MULTILINE)) for t in tests)
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "--import-mode=importlib"]
    command += ["-p", "no:cacheprovider", "-p", "pytest_kafkaclient"]
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # the others cost seconds
    if shutil.which("kcat") is None:
        command += ["--deselect", "page/test_any_client.py::test_a_program"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    counts = {what: int(n) for n, what in re.findall(r"(\d+) (\w+)", done.stdout.splitlines()[-1])}
    assert done.returncode == 0, done.stdout
    assert sum(counts.get(what, 0) for what in ("passed", "skipped", "deselected")) == expected
    assert counts["passed"] >= expected - 4  # three of them use kcat, one the tools of Kafka
