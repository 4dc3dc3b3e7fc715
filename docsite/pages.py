"""All pages that are written from the code, by their path in docs/."""

from __future__ import annotations

from docsite import api, broker_errors, command_line, options, prometheus_metrics


def written_pages() -> dict[str, str]:
    """The Markdown text of each page, by path."""
    return {
        **{page.path: page.text() for page in api.PAGES},
        **{f"reference/{page.file}": page.text() for page in options.PAGES},
        "reference/broker-errors.md": broker_errors.page(),
        "reference/command-line.md": command_line.page(),
        "reference/prometheus-metrics.md": prometheus_metrics.page(),
    }


WRITTEN = (
    *(page.path for page in api.PAGES),
    *(f"reference/{page.file}" for page in options.PAGES),
    "reference/broker-errors.md",
    "reference/command-line.md",
    "reference/prometheus-metrics.md",
)
"""Their paths, without the work of writing them."""
