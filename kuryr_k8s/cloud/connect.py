"""Authenticated adapters, made from the ``[neutron]`` options or a cloud of clouds.yaml."""

import contextlib
import re
import threading
import time
from collections.abc import Iterator
from typing import Any, Literal

import openstack
import openstack.config
import requests
from keystoneauth1 import exceptions as ksa
from keystoneauth1 import loading
from keystoneauth1.adapter import Adapter
from openstack import exceptions as sdk
from oslo_config import cfg

from kuryr_k8s import errors
from kuryr_k8s.cloud.account import Account
from kuryr_k8s.cloud.deadline import DeadlineAdapter, NotSent
from kuryr_k8s.patience import PATIENCE, Patience

_PASSING = re.compile(r" at 0x[0-9a-f]+| \(Request-ID: [^)]*\)")
# by the names of services: their types in the catalogue, what their addresses may end with
# there, and what these are to end with
UNDISCOVERED = {
    "load_balancer": ("load-balancer", ("/v2", "/v2.0"), "/v2.0"),
    "key_manager": ("key-manager", ("/v1",), "/v1"),
}


def connect(
    conf: cfg.ConfigOpts, *, connections: int, patience: Patience = PATIENCE
) -> openstack.connection.Connection:
    """Create a connection to the cloud without sending anything.

    :param connections: Number of HTTP connections that are kept open, one for each call in flight.
    :raises errors.ConfigError: There is no such cloud, or an option is missing.
    """
    try:
        connection = (
            openstack.connection.Connection(cloud=conf.neutron.cloud, strict_proxies=True)
            if conf.neutron.cloud
            else _from_options(conf)
        )
        connection.session.timeout = patience.authentication
        session = connection.session.session
    except (cfg.Error, sdk.ConfigException, sdk.SDKException, ksa.ClientException) as error:
        raise errors.ConfigError(f"[neutron]: {error}") from error
    for scheme in ("http://", "https://"):
        adapter = DeadlineAdapter(pool_connections=4, pool_maxsize=connections)
        session.mount(scheme, adapter)
    return connection


def _from_options(conf: cfg.ConfigOpts) -> openstack.connection.Connection:
    loading.register_session_conf_options(conf, "neutron")
    loading.register_auth_conf_options(conf, "neutron")
    loading.register_adapter_conf_options(conf, "neutron", include_deprecated=False)
    if not conf.neutron.auth_type and not conf.neutron.auth_section:
        raise errors.ConfigError("[neutron]: set cloud, or auth_type and its options")
    auth = loading.load_auth_from_conf_options(conf, "neutron")
    session = loading.load_session_from_conf_options(conf, "neutron", auth=auth)
    return openstack.connection.Connection(
        session=session,
        strict_proxies=True,  # otherwise a service that is missing once stays missing
        region_name=conf.neutron.region_name,
        network_endpoint_override=conf.neutron.endpoint_override,
        network_interface=(conf.neutron.valid_interfaces or [None])[0],
    )


class ServiceAdapter:
    """The SDK's adapter of a service, looked up in the catalogue at the first request.

    The lookup asks Keystone. Therefore it happens in the thread of the call, and again after a
    failure. Requests bypass ``openstack.proxy.Proxy.request`` and go to keystoneauth's adapter
    beneath it: the response cache and the statistics in between are not used here, and cost half
    the time.
    """

    def __init__(
        self,
        connection: openstack.connection.Connection,
        service: Literal["network", "load_balancer", "key_manager"],
        account: Account | None = None,
        patience: Patience = PATIENCE,
    ) -> None:
        self._connection = connection
        self._service = service
        self._account = account or Account()
        self._patience = patience
        self._lock = threading.Lock()
        self._failure: tuple[float, errors.CloudError] | None = None
        self._found: Any = None

    def close(self) -> None:
        """Close the HTTP connections that are kept open, to all services."""
        self._connection.session.session.close()

    def authenticate(self) -> str:
        """Get a token as :class:`kuryr_k8s.cloud.transport.Adapter` describes.

        One thread asks and the others wait for it. If Keystone is silent, they must not wait for
        one timeout after another.
        """
        if not self._lock.acquire(timeout=self._patience.authentication):
            raise errors.CloudError("[neutron]: Keystone does not answer")
        try:
            if self._failure and time.monotonic() - self._failure[0] < self._counts():
                raise self._failure[1]
            self._failure = None
            project_id = self._authenticate()
        except NotSent:
            raise  # of this call alone
        except errors.CloudError as error:
            if error.status == 401:
                self._account.refuse(error)
            self._failure = self._failure or (time.monotonic(), error)
            raise
        else:
            self._account.accept()
            return project_id
        finally:
            self._lock.release()

    def _counts(self) -> float:
        """Return for how long a failure counts for all."""
        if self._failure is not None and self._failure[1].status == 401:
            return self._patience.refused_authentication
        return self._patience.failed_authentication

    def _authenticate(self) -> str:
        with _translated("[neutron]"):
            try:
                return str(self._api().get_project_id())
            except (ksa.EndpointNotFound, ksa.NotFound) as error:
                self.invalidate()  # the catalogue came with the token
                # never NotFound, which would mean that a port is gone
                raise errors.CloudError(f"[neutron]: {_brief(error)}", status=404) from error

    def invalidate(self) -> None:
        self._connection.session.invalidate()

    def request(self, url: str, method: str, **kwargs: Any) -> requests.Response:
        with _translated(f"{method} {url}"):
            response: requests.Response = Adapter.request(self._api(), url, method, **kwargs)
            return response

    def _api(self) -> Any:
        """Return the SDK's adapter; the first call asks Keystone, and Neutron for its versions.

        Octavia answers the SDK's question for versions, asked below /v2.0 as its own proxy does,
        with a text that the SDK cannot read. Its address is therefore taken from the catalogue
        without asking, like Barbican's, whose answer names an address of its own.
        """
        if self._service == "network":
            return self._connection.network
        if self._found is None:
            kind, versions, version = UNDISCOVERED[self._service]
            adapter = self._connection.config.get_session_client(kind)
            endpoint = Adapter.get_endpoint(adapter, skip_discovery=True)
            if endpoint is None:
                raise ksa.EndpointNotFound(f"the catalogue has no {kind}")
            root = endpoint.rstrip("/")
            adapter.endpoint_override = root if root.endswith(versions) else root + version
            self._found = adapter
        return self._found


@contextlib.contextmanager
def _translated(what: str) -> Iterator[None]:
    """Translate the errors of the SDK and the libraries beneath it, here and only here."""
    try:
        yield
    except ksa.Unauthorized as error:
        raise errors.BadRequest(f"Keystone refuses us: {_brief(error)}", status=401) from error
    except (ksa.ClientException, sdk.SDKException, requests.RequestException) as error:
        raise errors.CloudError(f"{what}: {_brief(error)}") from error


def _brief(error: Exception) -> str:
    """Return the first line of what a library says, without what differs from call to call.

    urllib3 before 2.8 names the connection by its address in memory, keystoneauth the request by
    its id; each would make a new Event of the same failure.
    """
    text = (str(error) or type(error).__name__).splitlines()[0]
    return _PASSING.sub("", text)[:300]
