"""Kubeconfigs, with all that they name: files, plugins and identity providers.

What names servers, files and plugins is read here. Only identity providers need
``kubernetes_asyncio``; its import takes 34 MiB, so it is deferred.

https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/
"""

import asyncio
import base64
import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from kuryr_k8s.k8s import exec_plugin
from kuryr_k8s.k8s.credential_files import read_pem, read_token
from kuryr_k8s.k8s.credentials import (
    Certificates,
    Loaded,
    Unreadable,
    check_token,
    earliest,
    expiry_of,
)
from kuryr_k8s.k8s.exec_plugin import Given

Json = dict[str, Any]


class Kubeconfig:
    """The current context of a kubeconfig."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._directory = path.parent.absolute()

    def check(self) -> None:
        """Check that it names a server.

        :raises Unreadable: it does not, or there is no such file.
        """
        with self._blamed():
            self._server(self._read()[1])

    def load(self) -> Loaded:
        with self._blamed():
            return self._load()

    def _load(self) -> Loaded:
        config, cluster, user = self._read()
        given = exec_plugin.run(user["exec"], self._directory) if "exec" in user else None
        authorization = self._authorize(config, user, given)
        _scheme, _, token = authorization.partition(" ")
        named = [
            (cluster, "certificate-authority"),
            (user, "client-certificate"),
            (user, "client-key"),
            (user, "tokenFile"),
        ]
        files = [self._directory / entry[name] for entry, name in named if entry.get(name)]
        return Loaded(
            server=self._server(cluster),
            authorization=authorization,
            certificates=self._certificates(cluster, user, given),
            server_name=cluster.get("tls-server-name"),
            proxy=cluster.get("proxy-url"),
            files=(self._path, *files),
            expires=earliest(given.expires if given else None, expiry_of(token)),
        )

    def _read(self) -> tuple[Json, Json, Json]:
        """Read the file; return it, and of it the cluster and the user of the current context."""
        try:
            config = yaml.safe_load(self._path.read_text())
        except OSError as error:
            raise Unreadable(str(error)) from error
        context = _named(config, "contexts", config["current-context"])["context"]
        cluster = _named(config, "clusters", context["cluster"])["cluster"]
        user = _named(config, "users", context["user"]).get("user") if "user" in context else {}
        return config, cluster, user or {}

    def _server(self, cluster: Json) -> str:
        server = str(cluster.get("server") or "").rstrip("/")
        if not server:
            raise Unreadable(f"{self._path} names no server")
        return server

    def _authorize(self, config: Json, user: Json, given: Given | None) -> str:
        """Return the header ``Authorization``; empty if there is none."""
        if "auth-provider" in user:
            return self._ask_provider(config)
        if given is not None and given.token:
            return f"Bearer {given.token}"
        if "tokenFile" in user:  # it counts, as for kubectl
            return f"Bearer {read_token(self._directory / user['tokenFile'])}"
        if user.get("token"):
            return f"Bearer {check_token(str(user['token']).strip(), self._path)}"
        if user.get("username"):
            both = f"{user['username']}:{user.get('password', '')}"
            return f"Basic {base64.b64encode(both.encode()).decode()}"
        return ""

    def _certificates(self, cluster: Json, user: Json, given: Given | None) -> Certificates:
        if not self._server(cluster).startswith("https:"):
            return Certificates()
        certificate = self._pem(user, "client-certificate")
        key = self._pem(user, "client-key")
        if given is not None and given.certificate:
            certificate, key = given.certificate, given.key
        return Certificates(
            ca=self._pem(cluster, "certificate-authority"),
            certificate=certificate,
            key=key,
            verify=not cluster.get("insecure-skip-tls-verify"),
        )

    def _pem(self, entry: Json, name: str) -> str:
        if data := entry.get(f"{name}-data"):
            return base64.b64decode(data, validate=True).decode()
        return read_pem(self._directory / entry[name] if entry.get(name) else None)

    def _ask_provider(self, config: Json) -> str:
        """Return the header with the identity provider's token, fetched anew when it is time."""
        # here, since it is large
        from kubernetes_asyncio.client import Configuration
        from kubernetes_asyncio.config import ConfigException
        from kubernetes_asyncio.config.kube_config import KubeConfigLoader

        configuration = Configuration()
        with tempfile.TemporaryDirectory(prefix="kuryr-") as directory:
            try:
                loader = KubeConfigLoader(
                    config,
                    config_base_path=str(self._directory),
                    config_persister=self._write,
                    temp_file_path=directory,
                )
                asyncio.run(loader.load_and_set(configuration))
            except (ConfigException, AssertionError) as error:
                raise Unreadable(f"{self._path}: {error}") from error
        return str(configuration.api_key.get("BearerToken", "")).strip()

    def _write(self, config: Json) -> None:
        """Keep a token that the identity provider gives only once (OpenID Connect)."""
        self._path.write_text(yaml.safe_dump(config, default_flow_style=False))

    @contextlib.contextmanager
    def _blamed(self) -> Iterator[None]:
        """Blame whatever is malformed on the file."""
        try:
            yield
        except (ValueError, KeyError, TypeError, AttributeError, OSError, yaml.YAMLError) as error:
            words = f"{type(error).__name__}: {' '.join(str(error).split())}"
            raise Unreadable(f"{self._path} is no valid kubeconfig: {words}") from error


def _named(config: Json, kind: str, name: str) -> Json:
    """Return the entry of that name.

    :raises KeyError: there is none.
    """
    found: Json | None = next((item for item in config[kind] if item["name"] == name), None)
    if found is None:
        raise KeyError(f"{name!r} is not in {kind}")
    return found
