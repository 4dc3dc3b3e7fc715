"""Pages that are files at the repository's root, where their readers look for them."""

from __future__ import annotations

import re
from pathlib import Path

_ROOT = Path(__file__).parents[1]
PAGES = {"project/contributing.md": "CONTRIBUTING.md", "project/security.md": "SECURITY.md"}
"""The file at the root, by the path of its page."""


def page(path: str) -> str:
    """The text, with links as they are from ``docs/project/``."""
    text = (_ROOT / PAGES[path]).read_text("utf-8")
    text = re.sub(r"\[docs/[\w/-]+/([\w-]+)\.md\]\(", r"[\1](", text).replace("](docs/", "](../")
    for target, file in PAGES.items():
        text = text.replace(f"]({file})", f"]({Path(target).name})")
    return text
