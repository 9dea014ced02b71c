"""The client of Kubernetes, made from the options in ``[kubernetes]``."""

import os
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from kubernetes_asyncio.client import ApiClient, Configuration
from kubernetes_asyncio.config.incluster_config import (
    SERVICE_CERT_FILENAME,
    SERVICE_HOST_ENV_NAME,
    SERVICE_PORT_ENV_NAME,
    SERVICE_TOKEN_FILENAME,
)
from oslo_config import cfg

from kuryr_k8s import errors
from kuryr_k8s.k8s.api import KubeApi
from kuryr_k8s.k8s.credentials import Credentials, Source, Unreadable
from kuryr_k8s.k8s.gate import Deadline
from kuryr_k8s.k8s.refusals import Refusals
from kuryr_k8s.k8s.sources import Files, Kubeconfig
from kuryr_k8s.patience import PATIENCE, Patience

CONNECTIONS = 20  # four of them are watches; each costs a quarter of a MiB


async def connect(
    conf: cfg.ConfigOpts,
    *,
    connections: int = CONNECTIONS,
    deadline: Deadline | None = None,
    heard: Callable[[str], None] = lambda _date: None,
    refusals: Refusals | None = None,
    patience: Patience = PATIENCE,
) -> KubeApi:
    """Make a client of the API server; nothing is sent yet, and no credentials are read.

    :param connections: the most that are open at once; further calls wait for one.
    :param deadline: returns the seconds that a write may take, see :class:`KubeApi`.
    :param heard: called with the ``Date`` of each answer, see :class:`KubeApi`.
    :param refusals: what the server refuses us, see :class:`KubeApi`.
    :raises errors.ConfigError: the options lead to no API server.
    """
    configuration = Configuration()
    configuration.connection_pool_maxsize = connections
    source = _source(conf.kubernetes)
    if isinstance(source, Files) and source.ca is not None and source.ca.is_file():
        configuration.ssl_ca_cert = str(source.ca)  # else those of the system are loaded
    return KubeApi(
        ApiClient(configuration),
        timeout=patience.kube_call,
        deadline=deadline,
        heard=heard,
        credentials=Credentials(source),
        refusals=refusals,
    )


def _source(options: cfg.ConfigOpts.GroupAttr) -> Source:
    """Return where the options say that the credentials are."""
    if options.kubeconfig:
        kubeconfig = Kubeconfig(Path(options.kubeconfig).expanduser())
        try:
            kubeconfig.check()
        except Unreadable as error:
            raise errors.ConfigError(f"[kubernetes] kubeconfig: {error}") from error
        return kubeconfig
    if options.api_root:
        return _of_options(options)
    host = os.environ.get(SERVICE_HOST_ENV_NAME)
    port = os.environ.get(SERVICE_PORT_ENV_NAME)
    if not host or not port:
        raise errors.ConfigError(
            "[kubernetes] api_root is not set, and this is no Pod: there is no "
            f"{SERVICE_HOST_ENV_NAME} in the environment"
        )
    return Files(
        root=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        ca=Path(SERVICE_CERT_FILENAME),
        token=Path(SERVICE_TOKEN_FILENAME),
    )


def _of_options(options: cfg.ConfigOpts.GroupAttr) -> Files:
    url = urlsplit(options.api_root)
    if url.scheme not in ("http", "https") or not url.hostname or url.port == 0:
        raise errors.ConfigError(f"[kubernetes] api_root: {options.api_root!r} is no URL")
    ca = _path(options.ssl_ca_crt_file)
    if ca is not None and not ca.is_file():
        raise errors.ConfigError(f"[kubernetes] ssl_ca_crt_file: there is no {ca}")
    return Files(
        root=options.api_root.rstrip("/"),
        ca=ca,
        certificate=_path(options.ssl_client_crt_file),
        key=_path(options.ssl_client_key_file),
        token=_path(options.token_file),
        verify=options.ssl_verify_server_crt,
    )


def _path(option: str | None) -> Path | None:
    return Path(option) if option else None
