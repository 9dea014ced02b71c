"""Handlers of the L7 router and of what asks for routes on it."""
