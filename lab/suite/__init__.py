"""The test suite: all stages of `make test`."""
