from __future__ import annotations

import pytest

from kafkaclient.pages import page


@pytest.fixture(autouse=True)
def _without_plotly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages without plotly's script, whose 4 MB take a second to import."""
    monkeypatch.setattr(page, "_plotly_js", lambda: "")
