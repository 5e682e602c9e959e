"""Benchmarks: speed, accuracy and control, each a module with a command line."""
