"""Sojourn: admission and autoscaling of LLM inference, from one model of queues and memory."""
