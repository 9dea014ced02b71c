"""Ports that users made and name by their ids."""

from collections.abc import Sequence
from typing import Any

from kuryr_k8s import errors
from kuryr_k8s.drivers.base import NORMAL, granted
from kuryr_k8s.drivers.named.context import Context

Json = dict[str, Any]
VNIC_TYPE = "binding:vnic_type"


async def named_port(
    context: Context, namespace: str, project_id: str, port_id: str, vnic_types: Sequence[str]
) -> Json:
    """Return a port that users of a namespace name, if they may and Pods can have it.

    :param vnic_types: those that count.
    :raises errors.Refused: there is none, or it is none that Pods can have.
    :raises granted.NotGranted: [policy] does not grant it.
    """
    by_id = granted.check_named(context.conf, "ports", namespace, port_id)
    unknown = f"there is no port {port_id}"
    if not by_id:  # the same words whether there is no such port, or it is another project's
        unknown += f" of project {project_id}"
    try:
        port = await context.neutron.get_port(port_id)
    except errors.NotFound as error:
        raise errors.Refused(unknown) from error
    if not by_id and port["project_id"] != project_id:
        raise errors.Refused(unknown)
    vnic_type = port.get(VNIC_TYPE, NORMAL)
    if vnic_type not in vnic_types:
        kinds = " or ".join(vnic_types)
        raise errors.Refused(f"port {port_id}: its vnic_type is {vnic_type}, not {kinds}")
    if not port["admin_state_up"]:
        raise errors.Refused(f"port {port_id}: its admin_state_up is false")
    if port.get("port_security_enabled") is False:
        _check_port_security(context, namespace, port)
    return port


def _check_port_security(context: Context, namespace: str, port: Json) -> None:
    """Check that Pods of a namespace may have a port without port security.

    :raises granted.NotGranted: [policy] does not grant it.
    """
    try:
        granted.check_named(context.conf, "port_security", namespace, port["network_id"])
    except granted.NotGranted as error:
        raise granted.NotGranted(
            f"port {port['id']} has no port security, which is not granted to namespace "
            f"{namespace} ([policy] port_security in kuryr.conf)"
        ) from error
