"""The demo: a real control plane, the shipped operator, simulated engines and a load staircase.

``python -m tests.e2e.demo`` runs it. The end-to-end tests use its parts: ``fleet`` gives pods an
engine, ``installation`` installs Sojourn as a user would, ``stage`` drives load and records.
"""
