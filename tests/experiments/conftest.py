from __future__ import annotations

import pytest

from kafkaclient import pages


@pytest.fixture(autouse=True)
def _without_plotly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages without plotly's large script."""
    monkeypatch.setattr(pages, "_plotly_js", lambda: "")
