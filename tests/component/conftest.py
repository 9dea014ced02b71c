"""A cloud with one dual-stack network for Pods, and a kuryr.conf for it."""

import configparser

import pytest

from kuryr_k8s import config
from kuryr_k8s.cloud import connect
from kuryr_k8s.cloud.neutron import Neutron
from kuryr_k8s.cloud.transport import Transport
from tests.fakes.cloud import FakeCloud

TAG = "test-cluster"
HOST = "chassis1"


@pytest.fixture
async def cloud():
    async with FakeCloud(hosts=[HOST, "chassis2"]) as cloud:
        cloud.pods = cloud.add_network("pods", "10.62.0.0/16", "fd62::/64", mtu=1442)
        cloud.group = cloud.add_security_group("pods")
        yield cloud


@pytest.fixture
def write_conf(tmp_path, cloud):
    """Write a kuryr.conf for the cloud; keyword arguments are groups of options."""

    def write(**groups):
        options = {
            "neutron": cloud.neutron_options(),
            "neutron_defaults": {
                "project": cloud.project_id,
                "pod_subnet": ",".join(cloud.pods["subnets"]),
                "pod_security_groups": cloud.group["id"],
                "resource_tags": TAG,
                "sweep_interval": "600",
            },
            "kubernetes": {"lock_file": str(tmp_path / "controller.lock")},
            "health_server": {"port": "0"},
        }
        for group, values in groups.items():
            options.setdefault(group, {}).update(values)
        parser = configparser.ConfigParser(interpolation=None)
        parser.read_dict(options)
        path = tmp_path / "kuryr.conf"
        with path.open("w") as file:
            parser.write(file)
        return path

    return write


@pytest.fixture
def load_conf(write_conf):
    def load(**groups):
        return config.load(["--config-file", str(write_conf(**groups))], "test")

    return load


@pytest.fixture
def neutron(load_conf):
    """Our client of the fake Neutron."""
    adapter = connect.NetworkAdapter(connect.connect(load_conf(), connections=16))
    transport = Transport(adapter, limit=16)
    yield Neutron(transport)
    transport.close()
