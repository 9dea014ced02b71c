"""Node ports and health checks of Services, served by the node."""
