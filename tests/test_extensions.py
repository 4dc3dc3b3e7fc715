"""Which modules are compiled, and what the build says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from release.extensions import c_types, sources, stale

ROOT = Path(__file__).parents[1]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The build script with one small module."""
    (tmp_path / "release").mkdir()
    shutil.copy(ROOT / "release" / "extensions.py", tmp_path / "release")
    shutil.copy(ROOT / "setup.py", tmp_path)
    package = tmp_path / "kafkaclient"
    package.mkdir()
    for name, text in (
        ("__init__.py", ""),
        ("plain.py", "X = 1\n"),
        ("typed.py", "def double(n: int) -> int:\n    return 2 * n\n"),
        ("typed.pxd", "cpdef Py_ssize_t double(Py_ssize_t n) except? -1\n"),
        ("types_only.pxd", "ctypedef int number\n"),
    ):
        (package / name).write_text(text)
    return tmp_path


def build(project: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"],
        cwd=project,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.full
def test_what_is_compiled_is_of_todays_sources(project: Path) -> None:
    """A change of the source, or of any C types, makes it old; so does a missing extension."""
    assert list(sources(project)) == ["kafkaclient.typed"]
    assert stale(project) == ["kafkaclient.typed"]
    assert build(project).returncode == 0
    assert stale(project) == []
    for name in ("typed.py", "types_only.pxd"):
        file = project / "kafkaclient" / name
        before = file.read_text()
        file.write_text(f"{before}# another\n")
        assert stale(project) == ["kafkaclient.typed"]
        assert build(project).returncode == 0
        assert stale(project) == []


@pytest.mark.full
def test_an_install_without_a_compiler_says_what_it_needs(project: Path) -> None:
    done = build(project, CC="/nonexistent/compiler")
    assert done.returncode != 0
    assert "kafkaclient needs a C compiler" in done.stderr


@pytest.mark.full
def test_an_extension_of_a_module_that_is_gone_is_removed(project: Path) -> None:
    left = project / "kafkaclient" / "gone.abi3.so"
    left.touch()
    assert build(project).returncode == 0
    assert not left.exists()


IMPORT = re.compile(r"^from (kafkaclient\S*) (c?import) (\([^)]*\)|.*)", re.MULTILINE)


def test_any_compiled_module_can_be_imported_first() -> None:
    """Before its body runs, a compiled module imports the modules whose C types it uses. These may
    use its C types, but no other name of it. Otherwise importing this module before them fails.
    integration/test_first_import.py imports each module of the package first; it takes long."""
    compiled = sources()
    types = set(re.findall(r"^cdef class (\w+)", c_types().decode(), re.MULTILINE))
    uses: dict[str, set[str]] = {}
    names: list[tuple[str, str, set[str]]] = []
    for source in (ROOT / "kafkaclient").rglob("*.p*"):
        if source.suffix in {".py", ".pyx", ".pxd"}:
            user = ".".join(source.relative_to(ROOT).with_suffix("").parts)
            for used, how, imported in IMPORT.findall(source.read_text("utf-8")):
                uses.setdefault(user, set()).add(used)
                if how == "import" and used in compiled:
                    names.append((user, used, set(re.findall(r"\w+", imported)) - types))
    for user, used, needed in names:
        reached = {used}
        while more := set().union(*(uses.get(each, ()) for each in reached)) - reached:
            reached |= more
        assert user not in reached or not needed, f"{user} imports {needed} of {used}"
