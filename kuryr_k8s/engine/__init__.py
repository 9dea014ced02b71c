"""The machinery of reconciling: queues, controllers, health and metrics."""
