"""Controller: the wiring. Kopf feeds the registry, the loop ticks, the webhook answers.

Only this room (with ``cli``) reads the clock. Kopf is used for watches and for the admission
server, with ``on.event`` handlers alone: no finalizer, no annotation, no timer lands on an object.
"""
