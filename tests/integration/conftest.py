"""Integration tests run on the embedded control plane."""

from tests.controlplane.fixtures import control_plane, namespace

__all__ = ["control_plane", "namespace"]
