"""Sources of credentials for the API server: files that options name, and kubeconfigs."""

import asyncio
import base64
import json
import os
import subprocess
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml
from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.config import ConfigException
from kubernetes_asyncio.config.kube_config import KubeConfigLoader

from kuryr_k8s.k8s.credentials import BEARER, Loaded, Unreadable, earliest, expiry_of

Json = dict[str, Any]
PLUGIN = 30.0  # seconds that a plugin may take


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """Files that options name, or that every Pod has.

    :param token: may be missing if there is a client certificate.
    """

    root: str
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    token: Path | None = None
    verify: bool = True

    def load(self) -> Loaded:
        configuration = Configuration()
        configuration.host = self.root
        configuration.verify_ssl = self.verify
        configuration.ssl_ca_cert = _name(self.ca)
        configuration.cert_file = _name(self.certificate)
        configuration.key_file = _name(self.key)
        token = self._read_token()
        if token:
            configuration.api_key[BEARER] = f"Bearer {token}"
        named = (self.ca, self.certificate, self.key, self.token)
        files = tuple(file for file in named if file is not None)
        return Loaded(configuration, files, expiry_of(token))

    def _read_token(self) -> str:
        if self.token is None or (self.certificate is not None and not self.token.exists()):
            return ""
        try:
            token = self.token.read_text().strip()
        except (OSError, ValueError) as error:
            raise Unreadable(f"the token cannot be read: {error}") from error
        if not token:
            raise Unreadable(f"there is no token in {self.token} yet")
        return token


class Kubeconfig:
    """A kubeconfig, with all that it names: files, and a plugin that is run."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def check(self) -> None:
        """Check that it names a server.

        :raises Unreadable: it does not, or there is no such file.
        """
        config, _user = self._read()
        self._loader(config)

    def load(self) -> Loaded:
        config, user = self._read()
        files, expires = [self._path], None
        if "exec" in user:
            given = _run(user.pop("exec"), self._path.parent)
            expires = _use(given, user)
        elif "tokenFile" in user:
            user.pop("token", None)  # the file counts, as for kubectl
            files.append(self._path.parent / user["tokenFile"])
        configuration = Configuration()
        try:
            asyncio.run(self._loader(config).load_and_set(configuration))
        except (ConfigException, OSError, ValueError) as error:
            raise Unreadable(f"{self._path}: {error}") from error
        token = str(configuration.api_key.get(BEARER, "")).strip()
        if BEARER in configuration.api_key:
            configuration.api_key[BEARER] = token
        names = (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)
        files += [Path(name) for name in names if name]
        return Loaded(configuration, tuple(files), earliest(expires, expiry_of(token)))

    def _read(self) -> tuple[Json, Json]:
        """Read the file; return it, and of it the user of the current context."""
        try:
            config = yaml.safe_load(self._path.read_text())
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise Unreadable(" ".join(str(error).split())) from error
        if not isinstance(config, dict):
            raise Unreadable(f"{self._path} is no kubeconfig")
        context = _named(config, "contexts", config.get("current-context")).get("context") or {}
        entry = _named(config, "users", context.get("user"))
        user = entry["user"] = entry.get("user") or {}
        return config, user

    def _loader(self, config: Json) -> KubeConfigLoader:
        try:
            return KubeConfigLoader(
                config,
                config_base_path=str(self._path.parent.absolute()),
                config_persister=self._write,
            )
        except (ConfigException, AssertionError) as error:
            raise Unreadable(f"{self._path}: {error}") from error

    def _write(self, config: Json) -> None:
        """Keep a token that the identity provider gives only once (OpenID Connect)."""
        self._path.write_text(yaml.safe_dump(config, default_flow_style=False))


def _named(config: Json, kind: str, name: str | None) -> Json:
    entries = config.get(kind) or []
    return next((entry for entry in entries if entry.get("name") == name), {})


def _name(file: Path | None) -> str | None:
    return str(file) if file is not None else None


def _run(plugin: Json, directory: Path) -> Json:
    """Run a plugin; return the status of the ExecCredential that it prints.

    https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins

    :raises Unreadable: it gives none.
    """
    command = str(plugin.get("command", ""))
    if "/" in command:
        command = str(directory / command)
    asked = {"kind": "ExecCredential", "apiVersion": plugin.get("apiVersion")}
    asked["spec"] = {"interactive": False}
    own = {item["name"]: str(item["value"]) for item in plugin.get("env") or ()}
    environment = dict(os.environ) | {"KUBERNETES_EXEC_INFO": json.dumps(asked)} | own
    try:
        done = subprocess.run(
            [command, *map(str, plugin.get("args") or ())],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PLUGIN,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise Unreadable(f"plugin {command}: {error}") from error
    if done.returncode:
        words = " ".join(done.stderr.decode(errors="replace").split())[-300:]
        raise Unreadable(f"plugin {command} ended with exit code {done.returncode}: {words}")
    try:
        status = json.loads(done.stdout)["status"]
        if status.get("token") or status["clientCertificateData"]:
            return dict(status)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Unreadable(f"plugin {command} printed no ExecCredential") from error
    raise Unreadable(f"plugin {command} printed an ExecCredential without credentials")


def _use(given: Json, user: Json) -> float | None:
    """Let the user have what a plugin has given; return when it expires."""
    if given.get("token"):
        user["token"] = str(given["token"])
        user.pop("tokenFile", None)
    for name, key in (("client-certificate", "Certificate"), ("client-key", "Key")):
        if data := given.get(f"client{key}Data"):
            user[f"{name}-data"] = base64.standard_b64encode(str(data).encode()).decode()
    if not given.get("expirationTimestamp"):
        return None
    try:
        return datetime.fromisoformat(str(given["expirationTimestamp"])).timestamp()
    except ValueError as error:
        raise Unreadable(f"no time: {given['expirationTimestamp']!r}") from error
