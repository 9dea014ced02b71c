"""From the ``[neutron]`` options, or a cloud of clouds.yaml, to authenticated adapters."""

from typing import Any

import openstack
import openstack.config
import requests
from keystoneauth1 import exceptions as ksa
from keystoneauth1 import loading
from keystoneauth1.adapter import Adapter
from keystoneauth1.session import TCPKeepAliveAdapter
from openstack import exceptions as sdk
from oslo_config import cfg

from kuryr_k8s import errors

# Seconds for each request of authentication and discovery. Calls of the API bring their own.
AUTHENTICATION = 8.0


def connect(conf: cfg.ConfigOpts, *, connections: int) -> openstack.connection.Connection:
    """A connection to the cloud; nothing is sent yet.

    :param connections: HTTP connections kept open, one for each call in flight.
    :raises errors.ConfigError: no such cloud, or an option is missing.
    """
    try:
        connection = (
            openstack.connection.Connection(cloud=conf.neutron.cloud)
            if conf.neutron.cloud
            else _from_options(conf)
        )
        connection.session.timeout = AUTHENTICATION
        session = connection.session.session
    except (sdk.ConfigException, sdk.SDKException, ksa.ClientException) as error:
        raise errors.ConfigError(f"[neutron]: {error}") from error
    for scheme in ("http://", "https://"):
        adapter = TCPKeepAliveAdapter(pool_connections=4, pool_maxsize=connections)
        session.mount(scheme, adapter)
    return connection


def _from_options(conf: cfg.ConfigOpts) -> openstack.connection.Connection:
    if not conf.neutron.auth_type and not conf.neutron.auth_section:
        raise errors.ConfigError("[neutron]: set cloud, or auth_type and its options")
    auth = loading.load_auth_from_conf_options(conf, "neutron")
    session = loading.load_session_from_conf_options(conf, "neutron", auth=auth)
    return openstack.connection.Connection(
        session=session,
        region_name=conf.neutron.region_name,
        network_endpoint_override=conf.neutron.endpoint_override,
        network_interface=(conf.neutron.valid_interfaces or [None])[0],
    )


class NetworkAdapter:
    """The SDK's adapter of Neutron, found in the catalogue at the first request.

    Finding it asks Keystone; so it happens in the thread of the call, and again after a failure.
    Requests go past ``openstack.proxy.Proxy.request``, to keystoneauth's adapter beneath it: the
    response cache and the statistics in between are not used here, and cost half the time.
    """

    def __init__(self, connection: openstack.connection.Connection) -> None:
        self._connection = connection

    def authenticate(self) -> str:
        try:
            return str(self._connection.network.get_project_id())
        except (ksa.EndpointNotFound, ksa.NotFound) as error:
            raise errors.NotFound(f"[neutron]: {error}", status=404) from error
        except sdk.SDKException as error:
            raise errors.CloudError(f"[neutron]: {error}") from error

    def request(self, url: str, method: str, **kwargs: Any) -> requests.Response:
        response: requests.Response = Adapter.request(
            self._connection.network, url, method, **kwargs
        )
        return response
