"""The controller's own HTTP API: its status, and the pools of ports."""
