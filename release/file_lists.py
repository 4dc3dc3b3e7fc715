"""What an sdist and a wheel must have, by the names of their files."""

from __future__ import annotations

import re
import tarfile
import zipfile
from typing import TYPE_CHECKING

from release import extensions

if TYPE_CHECKING:
    from pathlib import Path

MADE = ("PKG-INFO", "setup.cfg", "kafkaclient.egg-info/")
"""What setuptools adds to an sdist."""
PACKAGES = ("kafkaclient", "pyspark_kafkaclient", "pytest_kafkaclient")
FOR_A_BUILD = (".c", ".pyx", ".pxd", ".pyc")


def contents(file: Path) -> set[str]:
    """The names of files in an sdist, without its one folder, or in a wheel."""
    if file.suffix == ".whl":
        with zipfile.ZipFile(file) as wheel:
            return set(wheel.namelist())
    with tarfile.open(file) as sdist:
        return {member.name.partition("/")[2] for member in sdist if member.isfile()}


def sdist_problems(commit: set[str], sdist: set[str]) -> list[str]:
    """An sdist has the files of the commit, also the license, and what setuptools adds."""
    needed = {"LICENSE", *(f"{package}/py.typed" for package in PACKAGES)}
    return difference(commit | needed, {name for name in sdist if not name.startswith(MADE)})


def wheel_problems(plain: set[str], wheel: set[str], modules: list[str]) -> list[str]:
    """A wheel of the sdist has what one of the tree has, and each compiled module once.

    Each has its source beside it, or a stub, for type checkers.
    """
    compiled = [re.sub(r"\.[\w.-]+\.so$", ".so", name) for name in wheel if name.endswith(".so")]
    found = {name for name in wheel if not name.endswith(".so")}
    expected = {*plain, *(f"{package}/py.typed" for package in PACKAGES)}
    problems = difference(_without_metadata(expected), _without_metadata(found))
    problems += difference({f"{module.replace('.', '/')}.so" for module in modules}, set(compiled))
    twice = {name for name in compiled if compiled.count(name) > 1}
    problems += [f"compiled twice: {name}" for name in sorted(twice)]
    for name in sorted(_without_metadata(found)):
        if name.endswith(FOR_A_BUILD) or not name.startswith(tuple(f"{p}/" for p in PACKAGES)):
            problems.append(f"not for a wheel: {name}")
    if not any(name.endswith(".dist-info/licenses/LICENSE") for name in wheel):
        problems.append("missing: LICENSE")
    for path in (module.replace(".", "/") for module in modules if module != extensions.SHARED):
        if not {f"{path}.py", f"{path}.pyi"} & found:
            problems.append(f"no source or stub for type checkers: {path}")
    return problems


def _without_metadata(names: set[str]) -> set[str]:
    return {name for name in names if ".dist-info/" not in name}


def difference(expected: set[str], found: set[str]) -> list[str]:
    """What is missing, and what is too much."""
    missing = [f"missing: {name}" for name in sorted(expected - found)]
    return missing + [f"not expected: {name}" for name in sorted(found - expected)]


def metadata(wheel: Path) -> str:
    """The wheel's METADATA."""
    with zipfile.ZipFile(wheel) as content:
        (name,) = (each for each in content.namelist() if each.endswith(".dist-info/METADATA"))
        return content.read(name).decode()


def size(file: Path) -> str:
    """How many files, and how many MB."""
    return f"{len(contents(file)):,} files, {file.stat().st_size / 1e6:.1f} MB"
