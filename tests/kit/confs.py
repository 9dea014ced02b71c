"""kuryr.conf for a fake cloud, as a file."""

import atexit
import configparser
import functools
import itertools
import shutil
import tempfile
from pathlib import Path

from tests.kit.kube.proxy import CLUSTER_UID

TAG = "test-cluster"
CLUSTER = CLUSTER_UID  # the uid of the namespace kube-system, behind each proxy
MARK = f"kuryr-cluster:{CLUSTER}"
HOST = "chassis1"
NODE = "node1"
VM = "10.63.0.9"  # address of the node that is a VM
MACHINE = "10.62.0.9"  # of a VM in the network of Pods
PAIR_OF_USERS = {"ip_address": "10.62.0.250", "mac_address": "02:00:00:00:00:01"}
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kuryr-k8s-controller"


def write_conf(directory, cloud, **groups):
    """Write it for the cloud; keyword arguments are groups of options. Its path."""
    options = {
        "neutron": cloud.neutron_options(),
        "neutron_defaults": {
            "project": cloud.project_id,
            "pod_subnet": ",".join(cloud.pods["subnets"]),
            "pod_security_groups": cloud.group["id"],
            "resource_tags": TAG,
            "sweep_interval": "600",
        },
        "kubernetes": {"lock_file": str(directory / "controller.lock")},
        "health_server": {"port": "0", "admin_socket": str(new_socket())},
    }
    for group, values in groups.items():
        options.setdefault(group, {}).update(values)
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_dict(options)
    path = directory / "kuryr.conf"
    with path.open("w") as file:
        parser.write(file)
    return path


def new_socket():
    """Return a path that is nobody's yet, and short: a test's directory has a long name."""
    return _sockets() / f"{next(_NUMBERS)}.sock"


_NUMBERS = itertools.count()


@functools.cache
def _sockets():
    """Make the directory of this process."""
    directory = Path(tempfile.mkdtemp(prefix="kuryr-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


def furnish(cloud):
    """Give the cloud a dual-stack network for Pods and a security group."""
    cloud.pods = cloud.add_network("pods", "10.62.0.0/16", "fd62::/64", mtu=1442)
    cloud.group = cloud.add_security_group("pods")


def add_machine(cloud, address=MACHINE):
    """Give the cloud a VM in the network of Pods, with an address pair of its users'; its port."""
    fixed_ips = [{"subnet_id": cloud.pods["subnets"][0], "ip_address": address}]
    port = cloud.add_port(cloud.pods["id"], fixed_ips=fixed_ips)
    port["allowed_address_pairs"] = [dict(PAIR_OF_USERS)]
    return port["id"]


def add_vm(cloud, address=VM):
    """Give the cloud a VM with a trunk, in a network of its own; the options to use it."""
    if not hasattr(cloud, "nodes"):
        cloud.nodes = cloud.add_network("nodes", "10.63.0.0/24", mtu=1442)
    subnet = cloud.nodes["subnets"][0]
    fixed_ips = [{"subnet_id": subnet, "ip_address": address}]
    cloud.trunk = cloud.add_trunk(cloud.nodes["id"], fixed_ips=fixed_ips)
    cloud.set_status(cloud.trunk["port_id"], "ACTIVE")  # the VM runs: its subports are ACTIVE, too
    return {
        "kubernetes": {"pod_vif_driver": "nested-vlan"},
        "pod_vif_nested": {"worker_nodes_subnets": subnet},
    }
