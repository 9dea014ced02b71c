"""Kubernetes objects that the benchmarks create on the lab."""

from __future__ import annotations

from collections.abc import Mapping

from lab.kubernetes.client import Json

IMAGE = "lab.local/busybox:1"


def deployment(name: str, replicas: int, labels: Mapping[str, str], pod_spec: Json) -> Json:
    """Return a Deployment whose Pods have these labels and this spec."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod_spec},
        },
    }
