"""The client of Kubernetes, made from the options in ``[kubernetes]``."""

import os
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from oslo_config import cfg

from kuryr_k8s import errors
from kuryr_k8s.k8s.api import CALLS, KubeApi
from kuryr_k8s.k8s.credential_files import Files
from kuryr_k8s.k8s.credentials import Credentials, Source, Unreadable
from kuryr_k8s.k8s.gate import TimeLeft
from kuryr_k8s.k8s.kubeconfig import Kubeconfig
from kuryr_k8s.k8s.refusals import Refusals
from kuryr_k8s.patience import PATIENCE, Patience

# What each Pod has: https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/
HOST, PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


async def connect(
    conf: cfg.ConfigOpts,
    *,
    calls: int = CALLS,
    time_left: TimeLeft | None = None,
    heard: Callable[[str], None] = lambda _date: None,
    refusals: Refusals | None = None,
    patience: Patience = PATIENCE,
) -> KubeApi:
    """Make a client of the API server; nothing is sent yet, and no credentials are read.

    :param calls: the most that are in flight at once, see :class:`KubeApi`.
    :param time_left: returns the seconds that a write may take, see :class:`KubeApi`.
    :param heard: called with the ``Date`` of each answer, see :class:`KubeApi`.
    :param refusals: what the server refuses us, see :class:`KubeApi`.
    :raises errors.ConfigError: the options lead to no API server.
    """
    return KubeApi(
        Credentials(_source(conf.kubernetes)),
        calls=calls,
        timeout=patience.kube_call,
        time_left=time_left,
        heard=heard,
        refusals=refusals,
    )


def _source(options: cfg.ConfigOpts.GroupAttr) -> Source:
    """Return where the options say that the credentials are."""
    if options.kubeconfig:
        path = Path(options.kubeconfig).expanduser()
        kubeconfig = Kubeconfig(path)
        try:
            if path.exists():  # else it is waited for, as other credentials are
                kubeconfig.check()
        except Unreadable as error:
            raise errors.ConfigError(f"[kubernetes] kubeconfig: {error}") from error
        return kubeconfig
    if options.api_root:
        return _of_options(options)
    host, port = os.environ.get(HOST), os.environ.get(PORT)
    if not host or not port:
        raise errors.ConfigError(
            "[kubernetes] api_root is not set, and this is no Pod: there is no "
            f"{HOST} in the environment"
        )
    return Files(
        root=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        ca=ACCOUNT / "ca.crt",
        token=ACCOUNT / "token",
    )


def _of_options(options: cfg.ConfigOpts.GroupAttr) -> Files:
    url = urlsplit(options.api_root)
    if url.scheme not in ("http", "https") or not url.hostname or url.port == 0:
        raise errors.ConfigError(f"[kubernetes] api_root: {options.api_root!r} is no URL")
    return Files(
        root=options.api_root.rstrip("/"),
        ca=_path(options.ssl_ca_crt_file),
        certificate=_path(options.ssl_client_crt_file),
        key=_path(options.ssl_client_key_file),
        token=_path(options.token_file),
        verify=options.ssl_verify_server_crt,
    )


def _path(option: str | None) -> Path | None:
    return Path(option) if option else None
