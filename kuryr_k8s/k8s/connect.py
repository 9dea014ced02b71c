"""The client of Kubernetes, made from the options in ``[kubernetes]``."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import yaml
from kubernetes_asyncio.client import ApiClient, Configuration
from kubernetes_asyncio.config import ConfigException, load_kube_config
from kubernetes_asyncio.config.incluster_config import (
    SERVICE_CERT_FILENAME,
    SERVICE_TOKEN_FILENAME,
    InClusterConfigLoader,
)
from oslo_config import cfg

from kuryr_k8s import errors
from kuryr_k8s.k8s.api import KubeApi
from kuryr_k8s.k8s.gate import Deadline
from kuryr_k8s.patience import PATIENCE, Patience

TOKEN_LIFE = 60.0  # seconds after which the token's file is read again
CONNECTIONS = 20  # four of them are watches; each costs a quarter of a MiB


async def connect(
    conf: cfg.ConfigOpts,
    *,
    connections: int = CONNECTIONS,
    deadline: Deadline | None = None,
    heard: Callable[[str], None] = lambda _date: None,
    patience: Patience = PATIENCE,
) -> KubeApi:
    """Make a client of the API server; nothing is sent yet.

    :param connections: the most that are open at once; further calls wait for one.
    :param deadline: returns the seconds that a write may take, see :class:`KubeApi`.
    :param heard: called with the ``Date`` of each answer, see :class:`KubeApi`.
    :raises errors.ConfigError: a file is missing or unreadable.
    """
    options = conf.kubernetes
    configuration = Configuration()
    configuration.connection_pool_maxsize = connections
    try:
        if options.kubeconfig:
            await load_kube_config(
                config_file=options.kubeconfig, client_configuration=configuration
            )
        elif options.api_root:
            _from_options(configuration, options)
        else:
            InClusterConfigLoader(SERVICE_TOKEN_FILENAME, SERVICE_CERT_FILENAME).load_and_set(
                configuration
            )
        return KubeApi(
            ApiClient(configuration), timeout=patience.kube_call, deadline=deadline, heard=heard
        )
    except ConfigException as error:
        raise errors.ConfigError(f"[kubernetes] api_root is not set, and {error}") from error
    except (OSError, ValueError, yaml.YAMLError) as error:
        what = str(error).replace("\n", " ")
        raise errors.ConfigError(f"[kubernetes] the API cannot be used as told: {what}") from error


def _from_options(configuration: Configuration, options: cfg.ConfigOpts.GroupAttr) -> None:
    url = urlsplit(options.api_root)
    if url.scheme not in ("http", "https") or not url.hostname or url.port == 0:
        raise errors.ConfigError(f"[kubernetes] api_root: {options.api_root!r} is no URL")
    configuration.host = options.api_root.rstrip("/")
    for option in ("ssl_ca_crt_file", "ssl_client_crt_file", "ssl_client_key_file"):
        if options[option] and not Path(options[option]).is_file():
            raise errors.ConfigError(f"[kubernetes] {option}: there is no {options[option]}")
    configuration.verify_ssl = options.ssl_verify_server_crt
    configuration.ssl_ca_cert = options.ssl_ca_crt_file or None
    configuration.cert_file = options.ssl_client_crt_file or None
    configuration.key_file = options.ssl_client_key_file or None
    token_file = Path(options.token_file) if options.token_file else None
    if token_file and (token_file.exists() or not configuration.cert_file):
        configuration.refresh_api_key_hook = _TokenFile(token_file).refresh
        _TokenFile(token_file).refresh_now(configuration)


class _TokenFile:
    """The file of a ServiceAccount token, read again now and then: the kubelet replaces it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_at = 0.0

    async def refresh(self, configuration: Configuration) -> None:
        if time.monotonic() - self._read_at > TOKEN_LIFE:
            self._read_at = time.monotonic()
            await asyncio.to_thread(self.refresh_now, configuration)

    def refresh_now(self, configuration: Configuration) -> None:
        configuration.api_key["BearerToken"] = f"Bearer {self._path.read_text().strip()}"
