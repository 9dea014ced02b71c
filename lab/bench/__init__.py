"""The benchmarks, with all that they need."""
