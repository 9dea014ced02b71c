"""Node ports and health checks of Services on the node."""
