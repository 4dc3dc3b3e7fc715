"""All pages that are written from the code, by their path in docs/."""

from __future__ import annotations

from docsite import api, broker_errors, command_line, options, prometheus_metrics, root_pages


def written_pages() -> dict[str, str]:
    """The Markdown text of each page, by path."""
    return {
        **{page.path: page.text() for page in api.PAGES},
        **{f"reference/{page.file}": page.text() for page in options.PAGES},
        "reference/broker-errors.md": broker_errors.page(),
        "reference/command-line.md": command_line.page(),
        "reference/prometheus-metrics.md": prometheus_metrics.page(),
        **{path: root_pages.page(path) for path in root_pages.PAGES},
    }


WRITTEN = (
    *(page.path for page in api.PAGES),
    *(f"reference/{page.file}" for page in options.PAGES),
    "reference/broker-errors.md",
    "reference/command-line.md",
    "reference/prometheus-metrics.md",
    *root_pages.PAGES,
)
"""Their paths, without the work of writing them."""
