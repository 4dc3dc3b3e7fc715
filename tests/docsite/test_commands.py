"""The copy button of a block with prompts copies the commands only."""

from __future__ import annotations

import re
from html import unescape

import markdown  # type: ignore[import-untyped]
import pytest

from docsite.commands import with_commands_to_copy


def copied(text: str) -> list[str]:
    """What each code block of a page gives to the copy button, besides what it shows."""
    options = {"pymdownx.highlight": {"anchor_linenums": True}}  # as in mkdocs.yml
    extensions = ["pymdownx.highlight", "pymdownx.superfences"]
    html = markdown.markdown(text, extensions=extensions, extension_configs=options)
    return [
        unescape(found)
        for found in re.findall('data-copy="(.*?)">', with_commands_to_copy(html), re.S)
    ]


@pytest.mark.parametrize(
    ("shown", "commands"),
    [
        ("$ pip install .\n$ python -V\nPython 3.13\n\n& <more>", "pip install .\npython -V"),
        (
            "$ a 'b  \"c\" & <d>' \\\n    --more  # why\nout",
            "a 'b  \"c\" & <d>' \\\n    --more  # why",
        ),
    ],
)
def test_prompts_and_output_are_not_copied(shown: str, commands: str) -> None:
    assert copied(f"~~~console\n{shown}\n~~~\n\n~~~console\n{shown}\n~~~") == [commands] * 2


def test_other_blocks_are_copied_as_they_are() -> None:
    assert copied("~~~python\nprint('$ a')\n~~~\n\n~~~\n$ a\n~~~") == []
