"""Benchmarks: what is claimed about speed, calls and memory, as commands that measure it."""
