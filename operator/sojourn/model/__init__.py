"""Model: pure numbers. Queueing, batching, memory and fitting; arrays in, arrays out.

Nothing here reads a clock or a random number; only facts, units, errors and numpy are imported.
``choose.model_for`` gives the queueing model of a replica; ``sizing`` asks it for replicas.
"""
