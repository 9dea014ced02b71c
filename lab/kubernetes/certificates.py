"""Certificates and kubeconfigs, made with openssl. Files that exist are kept."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Sequence
from pathlib import Path

from lab import topology
from lab.paths import Paths, write_atomic
from lab.process import run
from lab.topology import Node, Worker

_SERVER_NAMES = (
    "DNS:localhost",
    "DNS:kubernetes",
    "DNS:kubernetes.default",
    "DNS:kubernetes.default.svc",
    "DNS:kubernetes.default.svc.cluster.local",
    "IP:127.0.0.1",
    f"IP:{topology.API_ADDRESS}",
    f"IP:{topology.Node('node1', 1).underlay_v6}",
    f"IP:{topology.KUBERNETES_SERVICE_V4}",
    f"IP:{topology.KUBERNETES_SERVICE_V6}",
)


def create(paths: Paths, nodes: Sequence[Node | Worker]) -> None:
    """Make all that the control plane and the nodes need."""
    store = Store(paths.pki)
    store.authority("ca")
    store.authority("front-proxy-ca")
    store.signing_key("sa")
    store.certificate("apiserver", "/CN=kube-apiserver", "serverAuth", _SERVER_NAMES)
    store.certificate(
        "apiserver-kubelet", "/O=system:masters/CN=kube-apiserver-kubelet-client", "clientAuth"
    )
    store.certificate(
        "front-proxy", "/CN=front-proxy-client", "clientAuth", authority="front-proxy-ca"
    )
    clients = {"admin": "/O=system:masters/CN=admin"} | {
        name: f"/CN=system:{name}" for name in ("kube-controller-manager", "kube-scheduler")
    }
    for name, subject in clients.items():
        store.certificate(name, subject, "clientAuth")
        store.kubeconfig(name)
    for node in nodes:
        names = (
            f"DNS:{node.name}",
            "IP:127.0.0.1",
            f"IP:{node.internal_v4}",
            f"IP:{node.internal_v6}",
        )
        store.certificate(
            f"kubelet-{node.name}",
            f"/O=system:nodes/CN=system:node:{node.name}",
            "clientAuth,serverAuth",
            names,
        )
        store.kubeconfig(f"kubelet-{node.name}")


class Store:
    """A directory with NAME.crt, NAME.key and NAME.kubeconfig."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def authority(self, name: str) -> None:
        """Make a certificate authority."""
        if self._file(name, "crt").exists():
            return
        key = self._key(name)
        certificate = run(
            [
                "openssl",
                "req",
                "-x509",
                "-new",
                "-key",
                str(key),
                "-subj",
                f"/CN=lab-{name}",
                "-days",
                "3650",
                "-addext",
                "keyUsage=critical,keyCertSign,cRLSign,digitalSignature",
            ]
        )
        write_atomic(self._file(name, "crt"), certificate)

    def signing_key(self, name: str) -> None:
        """Make a key pair without a certificate, for the tokens of ServiceAccounts."""
        if not self._file(name, "pub").exists():
            public = run(["openssl", "ec", "-in", str(self._key(name)), "-pubout"])
            write_atomic(self._file(name, "pub"), public)

    def certificate(
        self, name: str, subject: str, usage: str, names: Sequence[str] = (), authority: str = "ca"
    ) -> None:
        """Make a certificate signed by the authority."""
        if self._file(name, "crt").exists():
            return
        request = run(["openssl", "req", "-new", "-key", str(self._key(name)), "-subj", subject])
        extensions = ["keyUsage=critical,digitalSignature", f"extendedKeyUsage={usage}"]
        if names:
            extensions.append(f"subjectAltName={','.join(names)}")
        settings = self._file(name, "ext")
        write_atomic(settings, "\n".join(extensions) + "\n")
        certificate = run(
            [
                "openssl",
                "x509",
                "-req",
                "-days",
                "3650",
                "-CA",
                str(self._file(authority, "crt")),
                "-CAkey",
                str(self._file(authority, "key")),
                "-set_serial",
                f"0x{secrets.token_hex(8)}",
                "-extfile",
                str(settings),
            ],
            stdin=request,
        )
        settings.unlink()
        write_atomic(self._file(name, "crt"), certificate)

    def kubeconfig(self, name: str) -> None:
        """Write a kubeconfig that logs in with the certificate of the same name."""
        if self._file(name, "kubeconfig").exists():
            return
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "lab",
            "clusters": [
                {
                    "name": "lab",
                    "cluster": {
                        "server": topology.API_URL,
                        "certificate-authority-data": self._encoded("ca", "crt"),
                    },
                }
            ],
            "users": [
                {
                    "name": name,
                    "user": {
                        "client-certificate-data": self._encoded(name, "crt"),
                        "client-key-data": self._encoded(name, "key"),
                    },
                }
            ],
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": name}}],
        }
        write_atomic(self._file(name, "kubeconfig"), json.dumps(config, indent=1) + "\n", 0o600)

    def _file(self, name: str, suffix: str) -> Path:
        return self._directory / f"{name}.{suffix}"

    def _key(self, name: str) -> Path:
        path = self._file(name, "key")
        if not path.exists():
            write_atomic(
                path,
                run(["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout"]),
                0o600,
            )
        return path

    def _encoded(self, name: str, suffix: str) -> str:
        return base64.b64encode(self._file(name, suffix).read_bytes()).decode()
