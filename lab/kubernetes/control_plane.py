"""The control plane: etcd, kube-apiserver, kube-controller-manager, kube-scheduler."""

from __future__ import annotations

import json
from pathlib import Path

from lab import topology
from lab.lifecycle import probes
from lab.lifecycle.supervisor import Component
from lab.paths import Paths, write_atomic

ETCD_URL = "http://127.0.0.1:2379"
_ETCD_PEER_URL = "http://127.0.0.1:2380"
# Every request with who, what and when, but without bodies; what is only noise is left out.
_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "nonResourceURLs": ["/healthz*", "/readyz*", "/livez*"]},
        {"level": "Metadata"},
    ],
}


def audit_log(paths: Paths) -> Path:
    """Return the path of the API server's audit log."""
    return paths.logs / "audit.log"


def components(paths: Paths) -> list[Component]:
    """List the daemons of the control plane."""
    return [_etcd(paths), _apiserver(paths), _controller_manager(paths), _scheduler(paths)]


def write_files(paths: Paths) -> None:
    """Write the files that kube-apiserver reads besides certificates."""
    write_atomic(paths.etc / "audit-policy.json", json.dumps(_AUDIT_POLICY))


def _etcd(paths: Paths) -> Component:
    return Component(
        "etcd",
        (
            "etcd",
            "--name=lab",
            f"--data-dir={paths.data / 'etcd'}",
            f"--listen-client-urls={ETCD_URL}",
            f"--advertise-client-urls={ETCD_URL}",
            f"--listen-peer-urls={_ETCD_PEER_URL}",
            f"--initial-cluster=lab={_ETCD_PEER_URL}",
            f"--initial-advertise-peer-urls={_ETCD_PEER_URL}",
            "--unsafe-no-fsync",
        ),
        ready=(probes.http(f"{ETCD_URL}/health", pattern='"health":"true"'),),
        timeout=60,
    )


def _apiserver(paths: Paths) -> Component:
    pki = paths.pki
    return Component(
        "kube-apiserver",
        (
            "kube-apiserver",
            f"--etcd-servers={ETCD_URL}",
            f"--bind-address={topology.API_ADDRESS}",
            f"--secure-port={topology.API_PORT}",
            f"--advertise-address={topology.API_ADDRESS}",
            f"--service-cluster-ip-range={topology.SERVICE_RANGES}",
            f"--tls-cert-file={pki}/apiserver.crt",
            f"--tls-private-key-file={pki}/apiserver.key",
            f"--client-ca-file={pki}/ca.crt",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--allow-privileged",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            f"--service-account-key-file={pki}/sa.pub",
            f"--service-account-signing-key-file={pki}/sa.key",
            f"--kubelet-certificate-authority={pki}/ca.crt",
            "--kubelet-preferred-address-types=InternalIP",
            f"--kubelet-client-certificate={pki}/apiserver-kubelet.crt",
            f"--kubelet-client-key={pki}/apiserver-kubelet.key",
            f"--requestheader-client-ca-file={pki}/front-proxy-ca.crt",
            "--requestheader-allowed-names=front-proxy-client",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={pki}/front-proxy.crt",
            f"--proxy-client-key-file={pki}/front-proxy.key",
            f"--audit-policy-file={paths.etc}/audit-policy.json",
            f"--audit-log-path={audit_log(paths)}",
            "--audit-log-maxsize=200",
            "--audit-log-maxbackup=1",
            "--shutdown-delay-duration=0s",
        ),
        ready=(probes.http(f"{topology.API_URL}/readyz", pattern="ok", ca=f"{pki}/ca.crt"),),
        needs=("etcd",),
        timeout=90,
        grace=6,
        files=(f"{paths.etc}/audit-policy.json", f"{pki}/apiserver.crt"),
    )


def _controller_manager(paths: Paths) -> Component:
    pki = paths.pki
    return Component(
        "kube-controller-manager",
        (
            "kube-controller-manager",
            f"--kubeconfig={pki}/kube-controller-manager.kubeconfig",
            "--bind-address=127.0.0.1",
            "--use-service-account-credentials",
            "--leader-elect=false",
            f"--root-ca-file={pki}/ca.crt",
            f"--service-account-private-key-file={pki}/sa.key",
            f"--cluster-signing-cert-file={pki}/ca.crt",
            f"--cluster-signing-key-file={pki}/ca.key",
            f"--service-cluster-ip-range={topology.SERVICE_RANGES}",
            "--kube-api-qps=100",
            "--kube-api-burst=200",
        ),
        ready=(probes.http("https://127.0.0.1:10257/healthz", pattern="ok"),),
        needs=("kube-apiserver",),
        grace=4,
    )


def _scheduler(paths: Paths) -> Component:
    return Component(
        "kube-scheduler",
        (
            "kube-scheduler",
            f"--kubeconfig={paths.pki}/kube-scheduler.kubeconfig",
            "--bind-address=127.0.0.1",
            "--leader-elect=false",
            "--kube-api-qps=100",
            "--kube-api-burst=200",
        ),
        ready=(probes.http("https://127.0.0.1:10259/healthz", pattern="ok"),),
        needs=("kube-apiserver",),
        grace=4,
    )
