"""Manifests of the operator, and what generates those that follow from the code."""
