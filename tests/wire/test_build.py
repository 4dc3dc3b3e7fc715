from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import kafkaclient.wire.records
from kafkaclient.compiled_modules import COMPILED, COMPILED_TOOLS

PACKAGE = Path(kafkaclient.wire.records.__file__).parent.parent
SETUP = PACKAGE.parent / "setup.py"


@pytest.fixture
def project(tmp_path):
    """The build script with empty extensions, which are translated faster than the real ones."""
    if not SETUP.exists():
        pytest.skip("not a source tree")
    for source in re.findall(r'^    "([\w/]+\.pyx?)",', SETUP.read_text(), re.MULTILINE):
        target = tmp_path / source
        target.parent.mkdir(parents=True, exist_ok=True)
        for package in target.relative_to(tmp_path).parents[:-1]:
            (tmp_path / package / "__init__.py").touch()
        target.touch()
    shutil.copy(SETUP, tmp_path)
    (tmp_path / "kafkaclient" / "native.py").write_text("ANSWER: int = 42\n")
    (tmp_path / "kafkaclient" / "compiled_modules.py").write_text(
        'NATIVE = ("kafkaclient.native",)\n'
    )
    return tmp_path


def build(project, prelude="", **environment):
    script = f"import runpy, sys\n{prelude}\nsys.argv = ['setup.py', 'build_ext', '--inplace']\n"
    return subprocess.run(
        [sys.executable, "-c", f"{script}runpy.run_path('setup.py')"],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_build_without_a_compiler_leaves_the_extensions_out(project):
    pytest.importorskip("Cython")
    done = build(project, CC="/nonexistent/compiler")
    assert done.returncode == 0, done.stderr
    native = 2  # mypyc makes a library for all modules, and a small one for each
    assert done.stderr.count("building extension") == len(COMPILED + COMPILED_TOOLS) + native
    assert not list(project.rglob("*.so"))


def test_a_build_without_cython_and_mypyc_leaves_the_extensions_out(project):
    missing = "sys.modules['Cython'] = sys.modules['Cython.Build'] = None"
    missing += "; sys.modules['mypyc'] = sys.modules['mypyc.build'] = None"
    done = build(project, prelude=missing)
    assert done.returncode == 0, done.stderr
    assert not list(project.rglob("*.so"))


def test_a_build_leaves_mypyc_out_on_request(project):
    without_cython = "sys.modules['Cython'] = sys.modules['Cython.Build'] = None"
    done = build(project, prelude=without_cython, KAFKACLIENT_MYPYC="0")
    assert done.returncode == 0, done.stderr
    assert not list(project.rglob("*.so"))
