"""Without the extra, the error names it."""

from __future__ import annotations

import subprocess
import sys


def test_a_missing_extra_is_named() -> None:
    code = "import sys; sys.modules['opentelemetry'] = None; import kafkaclient.opentelemetry"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    last = found.stderr.splitlines()[-1]
    assert last.startswith("ImportError: kafkaclient.opentelemetry needs OpenTelemetry's packages")
    assert last.endswith("pip install 'kafkaclient[opentelemetry]'")
