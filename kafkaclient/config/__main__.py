"""``python -m kafkaclient.config`` prints the reference page (docs/configuration.md)."""

from __future__ import annotations

import sys

from kafkaclient.config.reference import render_reference

sys.stdout.write(render_reference())
