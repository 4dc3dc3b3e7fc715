"""Pages in headless Chromium, and what a script in them says about themselves."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)

needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="Chromium is not installed, so no page is opened"
)

# Chromium's windows are wider than a phone, so pages are in frames. They send what they found.
_NOTICE_ERRORS = """<script>
const errors = [];
for (const kind of ["error", "warn"]) console[kind] = (...said) => errors.push(said.join(" "));
addEventListener("error", event => errors.push(event.message || String(event.target.src)), true);
addEventListener("unhandledrejection", event => errors.push(String(event.reason)));
</script>"""
_TELL = """<script>
addEventListener("load", () => setTimeout(() => parent.postMessage({name, errors,
  width: document.documentElement.clientWidth, needed: document.documentElement.scrollWidth,
  ...(LOOK)()}, "*"), 1500));
</script>"""
_FRAMES = """<!DOCTYPE html><pre id="told"></pre>
<script>const found = [];
onmessage = event => {
  found.push(event.data);
  if (found.length == PAGES) told.textContent = JSON.stringify(found);
};</script>"""


def look_at(
    pages: Sequence[Path], width: int, look: str, folder: Path, *, dark: bool = False
) -> dict[str, dict[str, Any]]:
    """Open the pages, each in a frame of this width in pixels. Writes files beside them.

    Returns by each page's name what ``look``, a function of JavaScript, returns there, and
    ``errors`` of its console, its ``width``, and the width that it ``needed``.
    """
    frames = [_FRAMES.replace("PAGES", str(len(pages)))]
    for number, page in enumerate(pages):
        html = page.read_text("utf-8")
        script = f"<script>const name = {json.dumps(page.name)};</script>{_NOTICE_ERRORS}"
        html = html.replace("<head>", f"<head>{script}", 1)
        assert script in html
        if dark:
            html = html.replace('data-md-color-scheme="default"', 'data-md-color-scheme="slate"', 1)
        html = html.replace("</body>", f"{_TELL.replace('LOOK', look)}</body>")
        opened = page.with_name(f"looked-at-{number}-{page.name}")
        opened.write_text(html, "utf-8")
        frames.append(
            f'<iframe style="width: {width}px; height: 844px; border: 0" '
            f'src="{opened.as_uri()}"></iframe>'
        )
    frame = folder / "frames.html"
    frame.write_text("\n".join(frames), "utf-8")
    command = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    command += [f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=20000"]
    command.append(frame.as_uri())
    shown = subprocess.run(command, check=False, capture_output=True, text=True, timeout=110)
    found = re.search(r'<pre id="told">(.+?)</pre>', shown.stdout)
    assert found is not None, shown.stderr
    return {told["name"]: told for told in json.loads(unescape(found[1]))}
