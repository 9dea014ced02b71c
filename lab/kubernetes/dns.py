"""CoreDNS in the cluster, behind the ClusterIP that the kubelets tell Pods.

It reaches the API server at the ClusterIP of `kubernetes`, and Pods reach it at its own: both are
load balancers of Octavia, so it is there only together with them.
"""

from __future__ import annotations

import json
from typing import Any

from lab import facts, topology
from lab.install import images
from lab.kubernetes.client import kubectl

Json = dict[str, Any]
NAME, NAMESPACE = "kube-dns", "kube-system"
_LABELS = {"k8s-app": NAME}
# Nothing is forwarded: the lab has no names but the cluster's.
_COREFILE = """\
.:53 {
    errors
    health
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        pods insecure
    }
    cache 30
    reload
}
"""


def up(lab: facts.Lab) -> None:
    """Apply the objects of CoreDNS.

    Whether it answers depends on the load balancers, and takes a while. The Service of a `down`
    that did not wait goes first, or it would take what is applied with it: a controller that has
    Services must be running.

    :raises CommandError: that Service does not go in time.
    """
    service = (f"service/{NAME}", f"--namespace={NAMESPACE}")
    deleted = "--output=jsonpath={.metadata.deletionTimestamp}"
    if kubectl(lab, "get", *service, "--ignore-not-found", deleted):
        kubectl(lab, "wait", "--for=delete", *service, "--timeout=170s")
    items = {"apiVersion": "v1", "kind": "List", "items": objects()}
    kubectl(lab, "apply", "--filename=-", stdin=json.dumps(items))


def await_ready(lab: facts.Lab, seconds: int = 120) -> None:
    """Wait until all Pods of CoreDNS are Ready: they have seen the API server.

    :raises CommandError: they are not in time.
    """
    wait = ("rollout", "status", f"deployment/{NAME}", f"--timeout={seconds}s")
    kubectl(lab, "-n", NAMESPACE, *wait, timeout=seconds + 30)


def down(lab: facts.Lab, *, wait: bool = True) -> None:
    """Delete the objects of CoreDNS.

    :param wait: until its Service has gone, with its load balancers; only a controller that has
        Services sees to that.
    """
    items = {"apiVersion": "v1", "kind": "List", "items": objects()}
    delete = ("delete", "--ignore-not-found", "--timeout=170s", "--filename=-")
    kubectl(lab, *delete, f"--wait={str(wait).lower()}", stdin=json.dumps(items))


def objects() -> list[Json]:
    """List the objects of CoreDNS, dependencies first."""
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": NAME}
    account = {"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}
    read = [
        {"apiGroups": [""], "resources": ["services", "pods", "namespaces"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"]},
    ]
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _metadata()},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": NAME},
            "rules": [rule | {"verbs": ["list", "watch"]} for rule in read],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": NAME},
            "roleRef": role,
            "subjects": [account],
        },
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": _metadata(),
            "data": {"Corefile": _COREFILE},
        },
        _deployment(),
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": _metadata(),
            "spec": {
                "selector": _LABELS,
                "ipFamilyPolicy": "RequireDualStack",
                "clusterIP": topology.CLUSTER_DNS,
                "clusterIPs": [topology.CLUSTER_DNS, topology.CLUSTER_DNS_V6],
                "ports": [
                    {"name": "dns", "port": 53, "protocol": "UDP"},
                    {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
                ],
            },
        },
    ]


def _deployment() -> Json:
    container = {
        "name": "coredns",
        "image": images.COREDNS,
        "imagePullPolicy": "Never",
        "args": ["-conf", "/etc/coredns/Corefile"],
        "ports": [
            {"name": "dns", "containerPort": 53, "protocol": "UDP"},
            {"name": "dns-tcp", "containerPort": 53, "protocol": "TCP"},
        ],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 2},
        "livenessProbe": {"httpGet": {"path": "/health", "port": 8080}, "failureThreshold": 5},
        "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns", "readOnly": True}],
    }
    spec = {
        "serviceAccountName": NAME,
        "dnsPolicy": "Default",
        "terminationGracePeriodSeconds": 5,
        "containers": [container],
        "volumes": [{"name": "config", "configMap": {"name": NAME}}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(),
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": _LABELS},
            "template": {"metadata": {"labels": _LABELS}, "spec": spec},
        },
    }


def _metadata() -> Json:
    return {"name": NAME, "namespace": NAMESPACE, "labels": _LABELS}
