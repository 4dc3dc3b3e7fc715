"""What the copy button of a console block copies: the commands, without prompts and output."""

from __future__ import annotations

import re
from html import escape, unescape

_BLOCK = re.compile(r'<div class="([^"]*\bhighlight)">(<pre>.*?</pre>)', re.DOTALL)
_PROMPT = re.compile(r'<span class="gp">.*?</span>')
_TAG = re.compile(r"<[^>]+>")


def with_commands_to_copy(html: str) -> str:
    """The page, in which each block with prompts has the attribute ``data-copy``, which the theme's
    copy button reads."""
    return _BLOCK.sub(_marked, html)


def _marked(block: re.Match[str]) -> str:
    style, code = block.groups()
    if '<span class="gp">' not in code:
        return block[0]
    lines = [line for line in code.splitlines() if '<span class="go">' not in line]
    shown = (unescape(_TAG.sub("", _PROMPT.sub("", line))) for line in lines)
    commands = "\n".join(line.rstrip() for line in shown if line.strip())
    return f'<div class="{style}" data-copy="{escape(commands)}">{code}'
