"""Pure translation for Pods on VMs: from requests to bodies of ports, from subports to VIFs.

Neutron attaches no port that has a ``device_id``, and sets ``device_owner`` itself while a port is
attached. So neither field can name a port's Pod: a tag with the Pod's uid does, and the
description does until the port has its tags.
"""

from typing import Any

from kuryr_k8s.cloud.neutron.automatic_addresses import asked_subnet_ids_of
from kuryr_k8s.drivers.base import (
    POOL_TAG,
    PodNetwork,
    PooledPort,
    PoolKey,
    PortRequest,
)
from kuryr_k8s.drivers.vif import neutron_plan as vif_plan
from kuryr_k8s.model import vif as model

Json = dict[str, Any]
_POD = "kuryr-pod:"


def pod_tag(pod_uid: str) -> str:
    """Return the tag that marks the ports of a Pod."""
    return f"{_POD}{pod_uid}"


def pod_uid_of(port: Json) -> str:
    """Return the uid of the Pod for which the port was made; empty for other ports.

    The description names it: Neutron does not show everybody the tags of other projects' ports.
    """
    mark: str = port.get("description") or ""
    return mark.removeprefix(_POD) if mark.startswith(_POD) else ""


def is_made_here(port: Json) -> bool:
    """Return whether this driver made the port, attached or not."""
    pooled = POOL_TAG in port.get("tags", ()) and not port.get("binding:host_id")
    return pooled or bool(pod_uid_of(port))


def port_body(request: PortRequest, tags: tuple[str, ...]) -> Json:
    """Make the body of a port for a Pod; only its parent is bound to a host."""
    body = vif_plan.port_body(request, "", tags)
    mark = pod_tag(request.pod_uid)
    return _unbound(body | {"description": mark, "tags": [*body["tags"], mark]})


def pooled_body(key: PoolKey, tags: tuple[str, ...], device: str) -> Json:
    """Make the body of a pool's port, which is not bound to a host.

    :param device: see :func:`neutron_plan.pool_device`; the description has it.
    """
    body = vif_plan.pooled_body(key, tags, device)
    return _unbound(body | {"description": body["device_id"]})


def _unbound(body: Json) -> Json:
    return {name: value for name, value in body.items() if name != "binding:host_id"} | {
        "device_id": ""
    }


def pooled_port_of(port: Json, trunk_id: str, vlan_id: int, *, whole: bool = True) -> PooledPort:
    """Describe a subport for its pool.

    :param trunk_id: empty, and ``vlan_id`` 0, for a port that is not attached.
    :param whole: the port is attached, and does not merely look so: see
        :meth:`NestedVLAN.find_pooled`.
    """
    fixed_ips = tuple(sorted((ip["subnet_id"], ip["ip_address"]) for ip in port["fixed_ips"]))
    return PooledPort(
        id=port["id"],
        key=PoolKey(
            project_id=port["project_id"],
            place=trunk_id,
            network_id=port["network_id"],
            subnet_ids=asked_subnet_ids_of(port),
            security_groups=tuple(sorted(port["security_groups"])),
        ),
        mac=port["mac_address"],
        fixed_ips=fixed_ips,
        vlan_id=vlan_id,
        name=port["name"],
        device_id=port["device_id"],
        fit=whole and vif_plan.is_untouched(port),
    )


def vif_of(pooled: PooledPort, pod_network: PodNetwork, mtu: int) -> model.VIFVlanNested:
    """Describe the VIF that the node plugs for a subport.

    :param mtu: an upper limit; 0 for none.
    """
    return model.VIFVlanNested(
        id=pooled.id,
        address=pooled.mac,
        plugin="noop",
        vif_name=f"tap{pooled.id}"[: vif_plan.IFNAME_LIMIT],
        vlan_id=pooled.vlan_id,
        network=vif_plan.network_of(pooled, pod_network, mtu),
    )
