"""Decide: from one Situation to Findings and one Plan.

Pure functions over frozen dataclasses: time and history arrive in the Situation, nothing here
reads a clock, a socket or a random number. The way through:

    resolve    Declaration + catalogue -> Service, or the Findings that forbid one
    admission  the chain of checks behind the webhook, ``sojourn validate`` and the re-check
    holds      what keeps the operator from acting at all
    survey     design rate, live point, sizing and prediction
    costly     the answers of a tick that take long, asked sparingly
    table      the four rows, first match
    behaviour  HPA semantics: stabilisation, policies
    bounds     floor, ceiling, quota; each clip is recorded
    batch_loop the slow loop of max batch
    live_batch max batch of engines that take a new one while they run
    sharing    services that share one quota, by priority
    calibration  the service time as the live engine shows it
    planning   puts these in order and explains the outcome

To add a rule, write one check, give it a Reason, put it into its chain and add a row of tests.
"""
