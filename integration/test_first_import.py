"""Any module can be the first that a program imports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# What the modules need from elsewhere takes longest. It is imported once, before the fork.
OTHERS = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
print(*(name for name in sys.modules if name.split(".")[0] not in ("__main__", "kafkaclient")))
"""
EACH = """
import contextlib, importlib, os, sys
for name in sys.stdin.readline().split():
    with contextlib.suppress(ImportError):  # some are made by others, and cannot be imported
        importlib.import_module(name)
for name in sys.argv[1:]:
    if not (child := os.fork()):
        importlib.import_module(name)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        print(name)
"""


@pytest.mark.full
@pytest.mark.timeout(600)
def test_each_module_is_imported_first() -> None:
    sources = (p for p in (ROOT / "kafkaclient").rglob("*.py*") if p.suffix in {".py", ".pyx"})
    names = sorted(".".join(source.relative_to(ROOT).with_suffix("").parts) for source in sources)
    modules = [name.removesuffix(".__init__") for name in names]
    others = _run(OTHERS, modules)
    assert "asyncio" in others.split()
    assert _run(EACH, modules, others) == ""


def _run(code: str, modules: list[str], text: str = "") -> str:
    command = [sys.executable, "-c", code, *modules]
    return subprocess.run(command, input=text, stdout=subprocess.PIPE, text=True, check=True).stdout
