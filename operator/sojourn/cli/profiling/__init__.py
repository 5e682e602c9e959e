"""Profiling: measured service times from an endpoint, from benchmark files or from history.

Each source gives ``points``, one for each number of requests run together; ``fitting`` draws the
line through them, judges it and writes the ServingProfile.
"""
