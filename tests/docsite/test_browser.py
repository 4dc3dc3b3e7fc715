"""The site in headless Chromium: pages as wide as a screen and as a phone, light and dark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.browser import look_at, needs_chromium

ROOT = Path(__file__).parents[2]
PAGES = (
    *("index", "faq", "get-started/first-deployment", "how-to/consume", "how-to/command-line"),
    *("figures/slow-broker", "reference/producer-options", "reference/errors"),
    *("project/hard-situations", "project/kips"),
)
LOOK = """() => {
  const contrast = (one, other) => {
    const light = color => color.match(/[\\d.]+/g).slice(0, 3).map(Number).map(c => c / 255)
      .map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
      .reduce((sum, c, n) => sum + c * [0.2126, 0.7152, 0.0722][n], 0);
    const [high, low] = [light(one), light(other)].sort((a, b) => b - a);
    return (high + 0.05) / (low + 0.05);
  };
  const style = element => getComputedStyle(element);
  const text = document.querySelector("article p");
  return {
    contrast: contrast(style(text).color, style(document.body).backgroundColor),
    pictures: [...document.images].filter(image => !image.naturalWidth).map(image => image.src),
    wide: [...document.querySelectorAll(".md-typeset__scrollwrap")]
      .filter(table => table.scrollWidth > table.clientWidth)
      .map(table => table.innerText.slice(0, 60)),
    links: [...document.querySelectorAll("a[href]")].map(link => link.getAttribute("href")),
  };
}"""

pytestmark = [needs_chromium, pytest.mark.full, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    return folder


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_a_page_fits_and_says_nothing_on_the_console(
    site: Path, tmp_path: Path, width: int, dark: bool
) -> None:
    paths = [site / f"{page}.html" for page in PAGES]
    for name, told in look_at(paths, width, LOOK, tmp_path, dark=dark).items():
        assert told["errors"] == [], name
        assert told["pictures"] == [], name
        assert told["width"] == told["needed"], f"{name} scrolls to the side"
        assert told["contrast"] > 7, name
        if width > 1000:
            assert told["wide"] == [], f"{name} has tables that scroll"


def test_links_lead_to_pages_that_are_there(site: Path, tmp_path: Path) -> None:
    paths = [site / f"{page}.html" for page in PAGES]
    found = look_at(paths, 1280, LOOK, tmp_path)
    for path in paths:
        for link in found[path.name]["links"]:
            address = urlsplit(link)
            if address.scheme in ("", "file") and address.path:
                target = (path.parent / unquote(address.path)).resolve()
                assert (target / "index.html" if target.is_dir() else target).exists(), link
