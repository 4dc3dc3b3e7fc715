"""What is measured side by side with other clients; results are under ``results``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


def write_results(found: Any, out: Path | None) -> None:
    """Write what was measured as JSON, to the file ``out`` or to standard output."""
    text = json.dumps(found, indent=1) + "\n"
    if out:
        out.write_text(text, encoding="utf-8")
    else:
        print(text)
