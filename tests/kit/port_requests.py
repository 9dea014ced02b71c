"""What a Pod asks the pod_vif drivers for."""

from kuryr_k8s.drivers.base import PortRequest
from kuryr_k8s.drivers.policy.subnets import DefaultSubnets


def for_pod(context, cloud, *, pod_uid, node):
    """A coroutine function that makes requests of this Pod; keyword arguments are changes."""

    async def make(**changes):
        pod_network = await DefaultSubnets(context).pod_network(None, cloud.project_id)
        values = {
            "pod_uid": pod_uid,
            "pod_name": "default/web-0",
            "node": node,
            "ifname": "eth0",
            "project_id": cloud.project_id,
            "pod_network": pod_network,
            "security_groups": (cloud.group["id"],),
            "may_exist": False,
        }
        return PortRequest(**(values | changes))

    return make
