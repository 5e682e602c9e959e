"""Observe: facts from Prometheus and from the Kubernetes watches, one Observation a service.

Everything that can be missing is a Reading with its reason; nothing here decides, and nothing here
writes. Prometheus is asked a constant number of questions a tick whatever the number of services;
the cluster is answered from memory. A new signal is one role in ``engines`` and one expression in
``queries.py``.
"""
