"""Check requests that only the owner of a network may make.

Neutron would not refuse it: it checks our account, which may do more than users.
"""

import ipaddress
from collections.abc import Collection

from oslo_config import cfg

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import PodNetwork, granted


def check_owner(
    conf: cfg.ConfigOpts,
    namespace: str,
    project_id: str,
    pod_network: PodNetwork,
    *,
    unfiltered: str = "",
    chosen: str = "",
    addresses: Collection[str] = (),
) -> None:
    """Check that an interface asks for nothing that its project may not have.

    :param unfiltered: what asks for an interface without port security, in words; or empty.
    :param chosen: what asks for addresses or a MAC, in words; or empty.
    :param addresses: that are asked for.
    :raises errors.Refused: the network is another project's, or the addresses are for ClusterIPs.
    :raises granted.NotGranted: [policy] does not grant it.
    """
    network = pod_network.network
    is_owner = network.project_id == project_id
    if unfiltered:
        by_id = granted.check_named(conf, "port_security", namespace, network.id)
        if not (by_id or is_owner):
            raise errors.Refused(
                f"{unfiltered} can be had in networks of project {project_id} alone"
            )
    if chosen and not is_owner:
        raise errors.Refused(f"{chosen} can be had in networks of project {project_id} alone")
    services = set(conf.neutron_defaults.service_subnet)
    for subnet in pod_network.all_subnets:
        cidr = ipaddress.ip_network(subnet.cidr)
        if subnet.id in services and any(ipaddress.ip_address(each) in cidr for each in addresses):
            raise errors.Refused("addresses in subnets of Services are for ClusterIPs")
