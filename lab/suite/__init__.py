"""The test suite: all stages of `make test` and `make test-all`, and `make check`."""
