"""Specs of a Service's load balancers: an LBaaSServiceSpec for each ClusterIP.

Handlers ask here; the annotations are for others to read.
"""

import dataclasses
import ipaddress
import json
from collections.abc import Collection, Sequence

from kuryr_k8s import errors
from kuryr_k8s.cloud.neutron.api import Subnet
from kuryr_k8s.drivers.base import (
    Drivers,
    ServiceProjectDriver,
    ServiceSecurityGroupsDriver,
    ServiceSubnetsDriver,
)
from kuryr_k8s.k8s.events import Reference
from kuryr_k8s.k8s.resources import SERVICES
from kuryr_k8s.model.lbaas import LBaaSPortSpec, LBaaSServiceSpec
from kuryr_k8s.model.service import LOAD_BALANCER, Service


class ServiceSpecs:
    """Specs of Services, as the drivers decide.

    :param known: the projects that Services can belong to. What is in another one is not found
        again.
    """

    def __init__(self, drivers: Drivers, known: Collection[str]) -> None:
        self._known = known
        self._projects = drivers[ServiceProjectDriver]
        self._subnets = drivers[ServiceSubnetsDriver]
        self._groups = drivers[ServiceSecurityGroupsDriver]

    async def of(self, service: Service) -> tuple[LBaaSServiceSpec, ...]:
        """Return a spec for each ClusterIP, in their order; all else of them is the same.

        :raises errors.Refused: a driver does; or it chooses a project that kuryr.conf does not
            name; or an address is in no subnet of Services.
        """
        project = await self._projects.project(service)
        if project not in self._known:
            raise errors.Refused(
                f"the load balancer would belong to project {project}, which neither "
                "[neutron_defaults] project nor [policy] projects names"
            )
        subnets = await self._subnets.subnets(service, project)
        groups = await self._groups.security_groups(service, project)
        return _specs_of(service, project, subnets, groups)


def _specs_of(
    service: Service, project: str, subnets: Sequence[Subnet], groups: tuple[str, ...]
) -> tuple[LBaaSServiceSpec, ...]:
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
    """Return the id of the subnet that contains a ClusterIP.

    :raises errors.Refused: there is none.
    """
    for subnet in subnets:
        if ipaddress.ip_address(address) in ipaddress.ip_network(subnet.cidr):
            return subnet.id
    cidrs = ", ".join(subnet.cidr for subnet in subnets)
    raise errors.Refused(
        f"the ClusterIP {address} is in none of the subnets of Services ({cidrs}): "
        "see [neutron_defaults] service_subnet and the API server's --service-cluster-ip-range"
    )


def text_of(spec: LBaaSServiceSpec) -> str:
    """Return the text of the annotation."""
    return json.dumps(spec.to_json(), sort_keys=True)


def service_reference(service: Service | None) -> Reference | None:
    """Return what an Event about the Service refers to."""
    if service is None:
        return None
    return Reference.of(SERVICES, service)
