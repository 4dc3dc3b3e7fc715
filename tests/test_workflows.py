"""The CI workflow: actions are pinned, permissions are the least, and its commands exist."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / ".github" / "workflows" / "ci.yml").read_text("utf-8")
JOBS = yaml.safe_load(TEXT)["jobs"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def test_actions_are_pinned_by_commit_and_name_their_version() -> None:
    uses = re.findall(r"uses: (.*)", TEXT)
    assert len(uses) > 10
    for used in uses:
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", used), used
    versions = {tuple(used.split("@")) for used in uses}
    assert len(versions) == len({action for action, _ in versions})


def test_only_publishing_may_write() -> None:
    assert yaml.safe_load(TEXT)["permissions"] == {}
    writing = {
        name: job["permissions"] for name, job in JOBS.items() if "write" in str(job["permissions"])
    }
    assert writing == {
        "publish": {"id-token": "write"},
        "site": {"id-token": "write", "pages": "write"},
    }


def test_what_is_published_was_tested() -> None:
    assert set(JOBS["publish"]["needs"]) == {"test", "oldest", "types", "sdist", "wheels"}


def test_every_python_is_tested_and_gets_a_wheel() -> None:
    pythons = JOBS["test"]["strategy"]["matrix"]["python"]
    classified = [
        line.rpartition(" :: ")[2]
        for line in PROJECT["project"]["classifiers"]
        if re.fullmatch(r"Programming Language :: Python :: 3\.\d+", line)
    ]
    wheels = PROJECT["tool"]["cibuildwheel"]["build"].split()
    assert pythons == classified
    assert wheels == [f"cp{version.replace('.', '')}-*" for version in pythons]


def test_the_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for target in set(re.findall(r"run: make ([\w-]+)", TEXT)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
