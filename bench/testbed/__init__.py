"""The programs that benchmarks act on: API server, cloud, controller, and nodes."""
