"""etcd and kube-apiserver for one test session: TLS, RBAC, tokens; no other part of a cluster."""

from __future__ import annotations

import json
import shutil
import signal
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from .certificates import write_certificates
from .children import Launcher, free_ports, stop

ADMIN = "admin"
_START_SECONDS = 200  # where others have the processors


class KubeServer:
    """The two programs, in a directory of their own; blocking, so call it from a thread.

    `users` get a token each and no rights; the admin is in system:masters.
    """

    def __init__(
        self, directory: Path, programs: dict[str, Path], users: Iterable[str] = ()
    ) -> None:
        self._directory = directory
        self._programs = programs
        self._users = (ADMIN, *users)
        self._launcher = Launcher()
        self._etcd: subprocess.Popen[bytes] | None = None
        self._apiserver: subprocess.Popen[bytes] | None = None
        self._port, self._etcd_port, self._peer_port = free_ports(3)
        self._certificates = write_certificates(directory)
        self.base_url = f"https://127.0.0.1:{self._port}"
        self.etcd_url = f"http://127.0.0.1:{self._etcd_port}"
        self.ca_file = self._certificates.ca
        self.admin_token = self.token_for(ADMIN)
        self.kubeconfig = self.kubeconfig_for(ADMIN)
        self.audit_log = directory / "audit.log"
        self.furnished = False  # with the kinds and the permissions of the product

    def start(self) -> None:
        """Start both; returns when the API server is ready."""
        self._write_files()
        self._start_etcd()
        self.start_apiserver()

    def close(self) -> None:
        """End both."""
        for process in (self._apiserver, self._etcd):
            if process is not None:
                stop(process, kill=True)
        self._launcher.close()

    def stop_apiserver(self, *, kill: bool = False) -> None:
        """End the API server; what etcd has stays."""
        if self._apiserver is not None:
            stop(self._apiserver, kill=kill)
            self._apiserver = None

    def start_apiserver(self) -> None:
        """Start the API server at the address it had; returns when it is ready."""
        command = [str(self._programs["kube-apiserver"]), *self._apiserver_options()]
        self._apiserver = self._launcher.start(command, self._directory / "kube-apiserver.log")
        trust = ssl.create_default_context(cafile=str(self.ca_file))
        headers = {"Authorization": f"Bearer {self.admin_token}"}
        request = urllib.request.Request(f"{self.base_url}/readyz", headers=headers)
        self._wait_for(request, self._apiserver, trust)

    def restart_apiserver(self, *, kill: bool = False) -> None:
        """A new API server: watches break, and old resource versions are too old for it."""
        self.stop_apiserver(kill=kill)
        self.start_apiserver()

    def snapshot(self) -> Path:
        """A copy of all that etcd has at this moment: it stands still while it is copied."""
        assert self._etcd is not None
        copy = self._directory / f"etcd-{time.monotonic_ns()}"
        self._etcd.send_signal(signal.SIGSTOP)
        try:
            shutil.copytree(self._directory / "etcd", copy)
        finally:
            self._etcd.send_signal(signal.SIGCONT)
        return copy

    def rewind(self, snapshot: Path) -> None:
        """Restart both with what etcd had then: whatever was written since never happened."""
        self.stop_apiserver(kill=True)
        if self._etcd is not None:
            stop(self._etcd, kill=True)
        shutil.rmtree(self._directory / "etcd")
        shutil.copytree(snapshot, self._directory / "etcd")
        self._start_etcd()
        self.start_apiserver()

    def token_for(self, user: str) -> str:
        """The bearer token of one of the users."""
        if user not in self._users:
            raise ValueError(f"{user} is none of {', '.join(self._users)}")
        return f"token-of-{user}"

    def kubeconfig_for(self, user: str, url: str = "") -> Path:
        """A kubeconfig of the user; `url` is for a proxy instead of the server."""
        cluster: dict[str, Any] = {"server": url or self.base_url}
        if not url.startswith("http:"):
            cluster["certificate-authority"] = str(self.ca_file)
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "tests",
            "clusters": [{"name": "tests", "cluster": cluster}],
            "users": [{"name": user, "user": {"token": self.token_for(user)}}],
            "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": user}}],
        }
        where = f"-{urlsplit(url).port}" if url else ""  # several proxies, several files
        path = self._directory / f"{user}{where}.kubeconfig"
        path.write_text(json.dumps(config))
        return path

    def _write_files(self) -> None:
        rows = [
            f'{self.token_for(user)},{user},{user},"{"system:masters" if user == ADMIN else ""}"'
            for user in self._users
        ]
        (self._directory / "tokens.csv").write_text("\n".join(rows) + "\n")
        policy = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy"}
        rules = [
            # tells when the server had its permissions: until then it refuses everybody
            {
                "level": "Metadata",
                "users": ["system:apiserver"],
                "verbs": ["list", "watch"],
                "resources": [{"group": "rbac.authorization.k8s.io"}],
            },
            {"level": "None", "users": [ADMIN, "system:apiserver"]},
            {"level": "Metadata", "users": list(self._users), "omitStages": ["RequestReceived"]},
        ]
        (self._directory / "audit.json").write_text(json.dumps(policy | {"rules": rules}))

    def _start_etcd(self) -> None:
        peer = f"http://127.0.0.1:{self._peer_port}"
        command = [
            str(self._programs["etcd"]),
            f"--data-dir={self._directory / 'etcd'}",
            f"--listen-client-urls={self.etcd_url}",
            f"--advertise-client-urls={self.etcd_url}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync=true",
            "--log-level=warn",
        ]
        self._etcd = self._launcher.start(command, self._directory / "etcd.log")
        self._wait_for(urllib.request.Request(f"{self.etcd_url}/health"), self._etcd, None)

    def _apiserver_options(self) -> list[str]:
        files = self._certificates
        return [
            f"--etcd-servers={self.etcd_url}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._port}",
            f"--tls-cert-file={files.server}",
            f"--tls-private-key-file={files.server_key}",
            f"--token-auth-file={self._directory / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={files.service_accounts_key}",
            f"--service-account-signing-key-file={files.service_accounts_key}",
            "--service-cluster-ip-range=10.96.0.0/16,fd96::/112",
            # Nobody makes ServiceAccounts here, and Pods name none.
            "--disable-admission-plugins=ServiceAccount",
            "--endpoint-reconciler-type=none",
            "--default-watch-cache-size=50",
            f"--audit-policy-file={self._directory / 'audit.json'}",
            f"--audit-log-path={self.audit_log}",
            "--audit-log-mode=blocking",
            "--allow-privileged=true",
            "--profiling=false",
            "--v=0",
        ]

    def _wait_for(
        self,
        request: urllib.request.Request,
        process: subprocess.Popen[bytes],
        trust: ssl.SSLContext | None,
    ) -> None:
        """Ask until the answer is 200; a program that ended is reported with its last words."""
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline and process.poll() is None:
            try:
                with urllib.request.urlopen(request, timeout=5, context=trust):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.05)
        logs = sorted(self._directory.glob("*.log"))
        tails = [f"{log.name}: ...{log.read_text(errors='replace')[-1500:]}" for log in logs]
        raise RuntimeError(f"{request.full_url} did not get ready\n" + "\n".join(tails))
