"""The checks of `make release-check` that need no build, and what a release changes."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest

import kafkaclient
from release import dry_run, extensions, readme
from release.file_lists import sdist_problems, wheel_problems

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PACKAGES = ("kafkaclient", "pyspark_kafkaclient", "pytest_kafkaclient")
TYPED = {f"{name}/py.typed" for name in PACKAGES}
LICENSE = "kafkaclient-1.2.0.dist-info/licenses/LICENSE"
MODULES = ["kafkaclient.wire.crc", "kafkaclient.wire.rows", extensions.SHARED]
PLAIN = {"kafkaclient/wire/crc.py", "kafkaclient/wire/rows.pyi", *TYPED, LICENSE}
SO = "cpython-311-x86_64-linux-gnu.so"
COMPILED = {f"{module.replace('.', '/')}.{SO}" for module in MODULES}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree that is ready for the release of 1.2.0."""
    files = {
        "pyproject.toml": (
            '[project]\nversion = "1.2.0"\nurls.Repository = "https://example.org/a/b"\n'
        ),
        "README.md": "[Install](docs/get-started/install.md)\n",
        "docs/project/changelog.md": "## 1.2.0 - 2030-01-31\n\n## 1.1.0 - 2029-01-31\n",
        "docs/get-started/install.md": "`pip install kafkaclient`\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_tree_is_ready_for_its_tag(tree: Path) -> None:
    assert dry_run.before_release(tree, "v1.2.0") == []


def test_a_tag_is_the_version(tree: Path) -> None:
    assert dry_run.before_release(tree, "v1.1.0") == [
        "pyproject.toml has version 1.2.0, not that of v1.1.0"
    ]


@pytest.mark.parametrize(
    ("file", "text", "missing"),
    [
        (
            "docs/project/changelog.md",
            "## Unreleased\n",
            "changelog.md has no heading '## 1.2.0 - YYYY-MM-DD'",
        ),
        (
            "docs/project/changelog.md",
            "## 1.2.0\n",
            "changelog.md has no heading '## 1.2.0 - YYYY-MM-DD'",
        ),
        (
            "docs/get-started/install.md",
            "There is no release on PyPI yet. Install ...\n",
            "install.md says: There is no release on PyPI yet.",
        ),
        (
            "README.md",
            f"{dry_run.FROM_A_CLONE}\n",
            f"README.md says: {dry_run.FROM_A_CLONE}",
        ),
        (
            "pyproject.toml",
            '[project]\nversion = "1.2.0"\n',
            "1 links of README.md are dead on PyPI: set project.urls.Repository",
        ),
    ],
)
def test_what_a_release_lacks(tree: Path, file: str, text: str, missing: str) -> None:
    (tree / file).write_text(text)
    assert dry_run.before_release(tree, "v1.2.0") == [missing]


def test_a_command_that_fails_says_why() -> None:
    report = dry_run.Report()
    report.run("fine", [sys.executable, "-c", "print(1)"])
    report.run("wrong", [sys.executable, "-c", "raise SystemExit(input())"], "no such classifier")
    assert report.rows == [("fine", "passed"), ("wrong", "failed")]
    assert report.failed == ["wrong: no such classifier"]


def test_what_a_person_does_next() -> None:
    assert "- twine: bad" in dry_run.next_step(["twine: bad"], [], "v1.2.0", is_tag=True)
    assert "git push origin v1.2.0" in dry_run.next_step([], [], "v1.2.0", is_tag=True)
    told = dry_run.next_step([], ["a date"], "v1.2.0", is_tag=False)
    assert "- a date\n" in told
    assert "make release-check TAG=v1.2.0" in told


# --- the files of an sdist and a wheel ------------------------------------------------------------


def test_an_sdist_has_the_files_of_the_commit() -> None:
    commit = {"LICENSE", "setup.py", *TYPED}
    assert sdist_problems(commit, {*commit, "PKG-INFO", "kafkaclient.egg-info/SOURCES.txt"}) == []
    found = sdist_problems(commit, {"setup.py", "kafkaclient/crc.c", *TYPED})
    assert found == ["missing: LICENSE", "not expected: kafkaclient/crc.c"]


def test_a_wheel_has_what_the_tree_has_and_its_compiled_modules() -> None:
    assert wheel_problems(PLAIN, PLAIN | COMPILED, MODULES) == []


@pytest.mark.parametrize(
    ("less", "more", "problem"),
    [
        (f"kafkaclient/wire/crc.{SO}", "", "missing: kafkaclient/wire/crc.so"),
        (LICENSE, "", "missing: LICENSE"),
        ("pytest_kafkaclient/py.typed", "", "missing: pytest_kafkaclient/py.typed"),
        ("", f"kafkaclient/old.{SO}", "not expected: kafkaclient/old.so"),
        ("", "kafkaclient/wire/crc.abi3.so", "compiled twice: kafkaclient/wire/crc.so"),
    ],
)
def test_a_wheel_that_differs(less: str, more: str, problem: str) -> None:
    wheel = ((PLAIN | COMPILED) - {less}) | ({more} if more else set())
    assert problem in wheel_problems(PLAIN, wheel, MODULES)


@pytest.mark.parametrize("name", ["kafkaclient/wire/crc.c", "kafkaclient/a.pyx", "tests/test_a.py"])
def test_what_is_not_for_a_wheel_may_not_be_in_both(name: str) -> None:
    found = wheel_problems({*PLAIN, name}, {*PLAIN, *COMPILED, name}, MODULES)
    assert found == [f"not for a wheel: {name}"]


def test_type_checkers_find_each_compiled_module() -> None:
    plain = PLAIN - {"kafkaclient/wire/rows.pyi"}
    found = wheel_problems(plain, plain | COMPILED, MODULES)
    assert found == ["no source or stub for type checkers: kafkaclient/wire/rows"]


# --- README on PyPI -------------------------------------------------------------------------------


def test_links_become_absolute() -> None:
    text = "[a\nb](docs/a.md#c) ![p](docs/p.svg) [d](#d) [e](https://e.example/) [f](mailto:f@g)"
    assert readme.relative_links(text) == ["docs/a.md#c", "docs/p.svg"]
    assert readme.absolute(text, "https://example.org/a/b/", "v1.2.0") == (
        "[a\nb](https://example.org/a/b/blob/v1.2.0/docs/a.md#c) "
        "![p](https://example.org/a/b/raw/v1.2.0/docs/p.svg) "
        "[d](#d) [e](https://e.example/) [f](mailto:f@g)"
    )


def test_no_link_of_the_readme_is_left_relative(tree: Path) -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    (tree / "README.md").write_text(text)
    assert len(readme.relative_links(text)) > 30
    assert readme.relative_links(readme.for_pypi(tree)) == []


# --- what a release changes -----------------------------------------------------------------------


def test_the_version_is_the_same_in_both_files() -> None:
    assert PROJECT["project"]["version"] == kafkaclient.__version__


def test_one_page_says_whether_there_is_a_release() -> None:
    changelog = (ROOT / "docs/project/changelog.md").read_text("utf-8")
    is_released = re.search(r"^## \d.* - \d{4}-\d\d-\d\d$", changelog, re.MULTILINE) is not None
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    said = re.compile("no release on PyPI|not on PyPI|not released yet", re.IGNORECASE)
    saying = {page.name for page in pages if said.search(page.read_text("utf-8"))}
    assert saying - {"releasing.md"} == (set() if is_released else {"install.md"})


def test_the_tools_are_pinned_by_hash() -> None:
    pinned = (ROOT / "release/tools.txt").read_text("utf-8")
    for wanted in PROJECT["dependency-groups"]["release"]:
        name = re.match(r"[\w-]+", wanted)
        assert name is not None
        assert re.search(rf"^{name[0]}==\S+ \\\n +--hash=sha256:", pinned, re.MULTILINE), wanted
