"""Kubernetes' own end-to-end tests of the network, run on the lab: `make conformance`."""
