"""Settings of every test."""

from __future__ import annotations

from hypothesis import settings

# A first call fills caches and machines differ: time is measured by benchmarks, never by a test.
settings.register_profile("sojourn", deadline=None)
settings.load_profile("sojourn")
