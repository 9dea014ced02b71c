"""The creation of a port in subnets that have room, and what users are told if that fails."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from kuryr_k8s import errors
from kuryr_k8s.cloud.neutron.api import Neutron
from kuryr_k8s.drivers.base.pod_network import PodNetwork
from kuryr_k8s.drivers.base.port_settings import PortSettings

Json = dict[str, Any]
S = TypeVar("S", bound=PortSettings)
# Neutron's names of the error that another port has an address, or the MAC, that is asked for
TAKEN = ("IpAddressAlreadyAllocated", "IpAddressInUse", "MacAddressInUse")


class AddressInUse(errors.Refused):
    """Another port has the address, or the MAC, that is asked for."""

    reason = "KuryrAddressInUse"


async def create_with_room(
    neutron: Neutron, project_id: str, settings: S, body_of: Callable[[S], Json]
) -> Json:
    """Create a port in the first subnets that are not full.

    :param body_of: makes the body for settings, in one subnet of each family.
    :returns: the port.
    :raises AddressInUse: another port has what is asked for.
    :raises errors.OverQuota: the quota or the subnets are exhausted.
    """
    pod_network, full = settings.pod_network, neutron.full_subnets
    chosen: PodNetwork | None = pod_network.first_with_room(full.has_room)
    for _ in pod_network.all_subnets:
        if chosen is None:
            break
        full.attempt(chosen.asked_subnet_ids)
        try:
            return await neutron.create_port(body_of(replace(settings, pod_network=chosen)))
        except errors.OverQuota as error:
            failure = error
        except errors.Conflict as error:
            if error.kind not in TAKEN:
                raise
            asked = ", ".join(filter(None, (*settings.addresses, settings.mac)))
            raise AddressInUse(f"{asked}: {error.brief}") from error
        may_go_on = isinstance(failure, errors.NoAddress) and pod_network.further
        chosen = pod_network.with_room(full.has_room) if may_go_on else None
    raise _explained(failure, project_id, pod_network) from failure


def _explained(
    error: errors.OverQuota, project_id: str, pod_network: PodNetwork
) -> errors.OverQuota:
    """Reword the error to tell users which quota or network is exhausted."""
    if "quota" in str(error).lower():
        what = f"Neutron quota for ports is exhausted in project {project_id}"
    else:
        cidrs = ", ".join(subnet.cidr for subnet in pod_network.all_subnets)
        what = f"no free address in network {pod_network.network.name} ({cidrs})"
    return errors.OverQuota(what, status=error.status, request_id=error.request_id)
