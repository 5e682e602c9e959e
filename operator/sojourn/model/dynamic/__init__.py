"""Dynamic batching of one replica, exactly: chain at dispatch instants, first order, distribution.

A free server starts a batch as soon as B requests wait or the oldest has waited T; it takes the
first min(waiting, B). An arrival that finds K waiting is lost. The timer runs during service too,
as Triton's ``max_queue_delay_microseconds`` does.

``answer.solve`` is the way in; ``problem.Problem`` holds the inputs, ``chain`` the stationary law
of the number present at dispatch, ``places`` that of the time after which the server is free for
the oldest request of a batch (``oldest``), from which ``first_order`` has means and loss and
``followers`` everybody's wait; ``distribution`` makes percentiles of those.

Source: docs/explanation/queueing.md; Neuts (1967), Chaudhry and Templeton (1983).
"""
