"""An HTML page that needs no other file and no network: text, tables and plotly's pictures."""

from __future__ import annotations

import json
from html import escape
from importlib import import_module
from importlib.resources import files
from importlib.util import find_spec
from string import Template
from typing import TYPE_CHECKING

from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from kafkaclient.pages.figures import Curve, Figure


def write_page(
    path: Path, *, title: str, body: str, figures: Mapping[str, Figure], machine: str
) -> None:
    """Write the page; creates its folder if it is missing.

    ``body`` is HTML. Each name in ``figures`` is the id of an element in ``body``.
    """
    page = filled(
        "kafkaclient.pages",
        "page.html",
        title=escape(title),
        body=body,
        machine=escape(machine),
        # "</" would end the script element that the JSON stands in.
        figures=json.dumps(figures, separators=(",", ":")).replace("</", "<\\/"),
        plotly=_plotly_js(),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")


def filled(package: str, template: str, **fields: str) -> str:
    """The text of a package's template, with its ``$fields`` replaced by HTML."""
    text = files(package).joinpath(template).read_text("utf-8")
    return Template(text).substitute(fields)


def row(name: str, cells: Iterable[str], css_class: str = "") -> str:
    """A row of a table; ``name`` is plain text, each of ``cells`` comes from :func:`cell`."""
    attribute = f' class="{css_class}"' if css_class else ""
    return f"<tr{attribute}><th scope=row>{escape(name)}</th>{''.join(cells)}</tr>"


def cell(text: str, css_class: str = "") -> str:
    """A cell of a table; ``text`` is HTML."""
    return f'<td class="{css_class}">{text}</td>' if css_class else f"<td>{text}</td>"


def number(value: float | None, decimals: int) -> str:
    """The value with separated thousands; empty for None."""
    return "" if value is None else f"{value:,.{decimals}f}"


def verdict(text: str, *, good: bool = False) -> str:
    """A paragraph that says whether all went well; ``text`` is plain text."""
    return f'<p class="verdict {"good" if good else "bad"}">{escape(text)}</p>'


def legend(curves: Iterable[Curve]) -> str:
    """The curves' names, each behind a stroke of its color."""
    return "".join(
        f'<span><i style="background:{curve.color}"></i>{escape(curve.name)}</span>'
        for curve in curves
    )


def check_plotly() -> None:
    """Raise ConfigError if plotly is not installed: before hours of work for a page."""
    if find_spec("plotly") is None:
        raise ConfigError(
            "the pictures of an HTML report are drawn by plotly, which is not installed: "
            "pip install 'kafkaclient[report]'"
        )


def _plotly_js() -> str:
    check_plotly()
    script: str = import_module("plotly.offline").get_plotlyjs()
    return script
