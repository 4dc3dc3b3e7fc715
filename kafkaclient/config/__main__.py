"""``python -m kafkaclient.config`` prints docs/reference/producer-options.md."""

from __future__ import annotations

import sys

from kafkaclient.config.reference import render_reference

sys.stdout.write(render_reference())
