"""Settings for all unit tests."""

from __future__ import annotations

import os

from hypothesis import settings

# No deadline: a busy machine is no defect. HYPOTHESIS_PROFILE=exhaustive looks longer.
settings.register_profile("dev", max_examples=40, deadline=None)
settings.register_profile("ci", max_examples=100, deadline=None)
settings.register_profile("exhaustive", max_examples=5000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))
