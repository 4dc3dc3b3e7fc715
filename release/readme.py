"""README.md as PyPI shows it: links to files of the repository become URLs of the version.

``setup.py`` reads it for the metadata. Without ``project.urls.Repository`` the links stay relative,
and lead nowhere on PyPI; ``make release-check`` says so.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
_RELATIVE = re.compile(r"(!?)(\[[^\]]*\])\((?![a-z]+:|#)([^)\s]+)\)")


def for_pypi(root: Path = ROOT) -> str:
    """The README of a source tree."""
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    text = (root / "README.md").read_text("utf-8")
    repository = project.get("urls", {}).get("Repository")
    return absolute(text, repository, f"v{project['version']}") if repository else text


def absolute(text: str, repository: str, tag: str) -> str:
    """The text with absolute links, as GitHub has them: files as pages, pictures as files."""

    def link(found: re.Match[str]) -> str:
        kind = "raw" if found[1] else "blob"
        return f"{found[1]}{found[2]}({repository.rstrip('/')}/{kind}/{tag}/{found[3]})"

    return _RELATIVE.sub(link, text)


def relative_links(text: str) -> list[str]:
    """The targets of links that are relative."""
    return [found[2] for found in _RELATIVE.findall(text)]
