"""The embedded control plane: a real Kubernetes API on the loopback, without a cluster.

``binaries`` finds or builds the programs, ``plane.ControlPlane`` runs them, ``fixtures`` hands them
to pytest. Nothing here knows Sojourn: whatever is installed into the plane comes from outside.
"""
