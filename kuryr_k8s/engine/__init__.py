"""Queues, loops, sweeps, health checks and metrics: what reconciling is made of."""
