"""The benchmarks, from nothing."""
