"""Typed views of Kubernetes objects and the data model of VIFs; no input, no output."""
