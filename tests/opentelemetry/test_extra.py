"""Without the extra, the error names it."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("missing", ["opentelemetry", "opentelemetry.instrumentation"])
def test_a_missing_package_is_named_with_the_extra(missing: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; import kafkaclient.opentelemetry"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    last = found.stderr.splitlines()[-1]
    assert last.startswith("ImportError: kafkaclient.opentelemetry needs OpenTelemetry's packages")
    assert missing in last
    assert last.endswith("pip install 'kafkaclient[opentelemetry]'")
