"""Sojourn: admission and autoscaling of LLM inference services, from one model of queueing and memory."""

