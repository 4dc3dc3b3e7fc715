"""mkdocs' hooks: the pages that are written from the code, and files of the repository that pages
link to, join the pages of docs/."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

from docsite.commands import with_commands_to_copy
from docsite.pages import written_pages

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

_ROOT = Path(__file__).parents[1]
# From a page docs/KIND/NAME.md: a file that is not in docs.
_OUTSIDE = re.compile(r"\]\(\.\./\.\./([a-z][\w./-]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the written pages, and the files outside of docs/ that pages link to."""
    linked = {
        path
        for page in files.documentation_pages()
        for path in _OUTSIDE.findall(page.content_string)
        if page.src_uri.count("/") == 1
    }
    for path in sorted(linked):
        source = str(_ROOT / path)
        files.append(File.generated(config, path, abs_src_path=source))
    for path, text in written_pages().items():
        if files.get_file_from_path(path) is not None:
            raise ValueError(f"docs/{path} exists, and is also written from the code")
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """On the site, files of the repository are beside the pages' folders."""
    if page.file.src_uri.count("/") == 1:
        return _OUTSIDE.sub(r"](../\1)", markdown)
    return markdown


def on_page_content(html: str, **_: object) -> str:
    """The copy button of a console block copies its commands."""
    return with_commands_to_copy(html)
