"""Settings of every test."""

from __future__ import annotations

import os

from hypothesis import settings

# Before numpy is imported: many small systems are solved, and threads only get in the way.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# A first call fills caches and machines differ: time is measured by benchmarks, never by a test.
settings.register_profile("sojourn", deadline=None)
settings.load_profile("sojourn")
