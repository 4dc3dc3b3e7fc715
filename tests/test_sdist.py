"""What an sdist and a wheel have. `make wheel-test` compiles wheels, installs and tests them."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from release.file_lists import MADE

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[1]
OTHERS = {".html", ".json", ".lock", ".properties", ".yml"}
"""What a wheel has besides Python and compiled modules: templates, a dashboard, alert rules."""


def tracked() -> set[str]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    names = set(listed.stdout.decode().split("\0")) - {""}
    if "pyproject.toml" not in names:
        pytest.skip("not a git repository")
    return {name for name in names if (ROOT / name).exists()}


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An sdist that ``python -m build`` made of the files in git, unpacked."""
    pytest.importorskip("build")
    folder = tmp_path_factory.mktemp("sdist")
    source = folder / "source"
    for name in tracked():
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((ROOT / name).read_bytes())
    build(source, "--sdist", folder)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as content:
        content.extractall(folder / "unpacked", filter="data")
    (root,) = (folder / "unpacked").iterdir()
    return root


def build(source: Path, kind: str, folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", kind, "--outdir", folder, source],
        env={**os.environ, "KAFKACLIENT_COMPILE": "0"},  # compiling takes minutes
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout


@pytest.mark.timeout(120)
def test_an_sdist_is_the_whole_repository(unpacked: Path) -> None:
    """Its tests, docs, examples and benchmarks run from it, and wheels are built from it."""
    found = {str(file.relative_to(unpacked)) for file in unpacked.rglob("*") if file.is_file()}
    assert {name for name in found if not name.startswith(MADE)} == tracked()


@pytest.mark.timeout(120)
def test_a_wheel_from_the_sdist_has_what_is_needed_and_no_more(unpacked: Path) -> None:
    for left in unpacked / "build/lib", unpacked / "build/lib.linux-x86_64-cpython-311":
        (left / "kafkaclient").mkdir(parents=True)
        (left / "kafkaclient/moved.py").touch()  # an earlier build's
    build(unpacked, "--wheel", unpacked.parent)
    (wheel,) = unpacked.parent.glob("*.whl")
    with zipfile.ZipFile(wheel) as content:
        names = {name for name in content.namelist() if ".dist-info/" not in name}
    packages = ("kafkaclient/", "pyspark_kafkaclient/", "pytest_kafkaclient/")
    sources = {name for name in tracked() if name.startswith(packages)}
    others = {name for name in sources if Path(name).suffix in OTHERS}
    python = {name for name in sources if Path(name).suffix in (".py", ".pyi")}
    typed = {f"{package}py.typed" for package in packages}
    assert names == python | others | typed
    # Sources in Cython are for a build only; everything else is in the wheel.
    assert {Path(name).suffix for name in sources - names} == {".pxd", ".pyx"}
