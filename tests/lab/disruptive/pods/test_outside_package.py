"""A third party's package on the lab: its driver and binding give a Pod a second interface."""

import configparser
import shutil

import pytest

from lab.kuryr.installation import CONTROLLER, Installation, daemon
from lab.progress import Progress
from tests.lab.cluster import pod
from tests.outside.installed import install

ANNOTATION = "example.org/isolated-interface"
NODE = "node1"
PROGRAMS = (CONTROLLER, daemon(NODE))
pytestmark = [pytest.mark.lab_only, pytest.mark.product("plain")]


@pytest.fixture
def package(cluster):
    """Install kuryr-example beside the product, and name its Multi-VIF driver in kuryr.conf."""
    root = Installation(progress=Progress(quiet=True)).root
    (site,) = (root / "venv" / "lib").glob("python*/site-packages")
    conf = root / f"{CONTROLLER}.conf"
    before = conf.read_text()
    _remove(site)
    for program in PROGRAMS:
        cluster.supervisor.stop(program)
    install(site)
    settings = configparser.ConfigParser(interpolation=None)
    settings.read_string(before)
    settings["kubernetes"]["multi_vif_drivers"] = "example"
    with conf.open("w") as file:
        settings.write(file)
    try:
        for program in PROGRAMS:
            cluster.supervisor.start(program)
        yield
    finally:
        cluster.delete("pods", "--all")
        cluster.wait_for("the KuryrPorts are gone", lambda: not cluster.get("kuryrports"))
        for program in PROGRAMS:
            cluster.supervisor.stop(program)
        _remove(site)
        conf.write_text(before)
        for program in PROGRAMS:
            cluster.supervisor.start(program)


def _remove(site):
    for path in site.glob("kuryr_example*"):
        shutil.rmtree(path)


def test_pod_has_a_second_interface_by_a_driver_and_a_binding_of_another_package(cluster, package):
    web = pod("web", node=NODE)
    web["metadata"]["annotations"] = {ANNOTATION: "iso0"}
    cluster.apply(web, pod("other", node=NODE))
    cluster.wait_ready("web", "other")
    vifs = cluster.get("kuryrport", "web")["status"]["vifs"]
    kinds = {ifname: entry["vif"]["versioned_object.name"] for ifname, entry in vifs.items()}
    assert kinds == {"eth0": "VIFOpenVSwitch", "iso0": "VIFIsolated"}
    second = vifs["iso0"]["vif"]["versioned_object.data"]
    port = cluster.ports()[second["id"]]
    shown = cluster.exec("web", "ip", "address", "show", "iso0")
    assert port["mac_address"] in shown
    assert all(f"{ip['ip_address']}/" in shown for ip in port["fixed_ips"])
    other = cluster.get("pod", "other")["status"]["podIPs"]
    cluster.until_pings("web", *(address["ip"] for address in other))
    cluster.delete("pod", "web")
    cluster.wait_for("the second port is gone", lambda: second["id"] not in cluster.ports())
    cluster.assert_nothing_leaks()
