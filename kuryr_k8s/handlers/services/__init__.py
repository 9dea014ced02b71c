"""Handlers of Services and their load balancers."""
