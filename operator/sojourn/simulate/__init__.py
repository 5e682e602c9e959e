"""Simulate: queues played event by event, as an independent check and as a stand-in for engines.

Two uses of the same event machines (``batch_core``, ``step_core``): in real time behind a router
and a load generator, where they stand in for the pods of the demo and of the end-to-end tests
(``engine``, ``router``, ``load``, ``http``), and offline in their own time, where long seeded runs
check the formulas (``queues``). Nothing here imports a formula of ``model``. Randomness comes in as
a ``numpy.random.Generator``.
"""
