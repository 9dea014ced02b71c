"""From what a Service's load balancers are made: an LBaaSServiceSpec for each ClusterIP. The
handlers ask here; what stands in annotations is for others to read."""

import dataclasses
import ipaddress
import json
from collections.abc import Sequence

from kuryr_k8s import errors
from kuryr_k8s.cloud.neutron.api import Subnet
from kuryr_k8s.handlers.base import Drivers
from kuryr_k8s.k8s.events import Reference
from kuryr_k8s.k8s.resources import SERVICES
from kuryr_k8s.model.lbaas import LBaaSPortSpec, LBaaSServiceSpec
from kuryr_k8s.model.service import LOAD_BALANCER, Service


async def specs_of(drivers: Drivers, service: Service) -> tuple[LBaaSServiceSpec, ...]:
    """One for each ClusterIP, in their order; they differ in address and subnet alone.

    :raises errors.Refused: a driver does; or an address is in no subnet of Services.
    """
    project = await drivers.service_project.project(service)
    subnets = await drivers.service_subnets.subnets(service, project)
    groups = await drivers.service_security_groups.security_groups(service, project)
    spec = LBaaSServiceSpec(
        ports=tuple(
            LBaaSPortSpec(
                name=port.name or None,
                protocol=port.protocol,
                port=port.port,
                targetPort=port.target_port,
            )
            for port in service.ports
        ),
        project_id=project,
        security_groups_ids=groups,
        type=service.type,
        lb_ip=service.load_balancer_ip if service.type == LOAD_BALANCER else None,
    )
    return tuple(
        dataclasses.replace(spec, ip=address, subnet_id=subnet_of(address, subnets))
        for address in service.cluster_ips
    )


def subnet_of(address: str, subnets: Sequence[Subnet]) -> str:
    """Id of the subnet in which a ClusterIP is."""
    for subnet in subnets:
        if ipaddress.ip_address(address) in ipaddress.ip_network(subnet.cidr):
            return subnet.id
    cidrs = ", ".join(subnet.cidr for subnet in subnets)
    raise errors.Refused(
        f"the ClusterIP {address} is in none of the subnets of Services ({cidrs}): "
        "see [neutron_defaults] service_subnet and the API server's --service-cluster-ip-range"
    )


def text_of(spec: LBaaSServiceSpec) -> str:
    """As it stands in the annotation."""
    return json.dumps(spec.to_json(), sort_keys=True)


def service_reference(service: Service | None) -> Reference | None:
    """What an Event about the Service points at."""
    if service is None:
        return None
    return Reference(
        resource=SERVICES, namespace=service.namespace, name=service.name, uid=service.uid
    )
