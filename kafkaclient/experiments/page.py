"""An HTML page that needs nothing else, not even a network: text, tables, and plotly's pictures."""

from __future__ import annotations

import json
from html import escape
from importlib import import_module
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kafkaclient.experiments.figures import Figure

__all__ = ["cell", "filled", "write_page"]


def write_page(
    path: Path, *, title: str, body: str, figures: Mapping[str, Figure], machine: str
) -> None:
    """Write the page; its folder is made when it is missing.

    ``body`` is HTML; each name in ``figures`` is the id of an element of it.
    """
    page = filled(
        "page.html",
        title=escape(title),
        body=body,
        machine=escape(machine),
        figures=_script_json(figures),
        plotly=_plotly_js(),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")


def filled(template: str, **fields: str) -> str:
    """A template of this package with its ``$fields`` replaced by HTML."""
    text = files("kafkaclient.experiments").joinpath(template).read_text("utf-8")
    return Template(text).substitute(fields)


def cell(text: str, css_class: str = "") -> str:
    """A table's cell; ``text`` is HTML."""
    return f'<td class="{css_class}">{text}</td>' if css_class else f"<td>{text}</td>"


def _plotly_js() -> str:
    script: str = import_module("plotly.offline").get_plotlyjs()
    return script


def _script_json(value: Any) -> str:
    # "</" would end the script element that the JSON stands in.
    return json.dumps(value, separators=(",", ":")).replace("</", "<\\/")
