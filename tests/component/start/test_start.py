"""The start of the controller's process: one line and exit code 2, or a visible wait."""

import asyncio
import sys

import pytest

from tests.kit.confs import LEASE, NODE
from tests.kit.fakes.faults import answer

CONTROLLER = "from kuryr_k8s.app import main; main()"
# With less patience, but with the same outcomes.
HURRIED = """
import sys
from kuryr_k8s.app import NAME, ControllerApp
from kuryr_k8s.patience import Patience
from kuryr_k8s.process import start
patience = Patience(start_retry=0.3, start_grace=0.8)
sys.exit(start(NAME, sys.argv[1:], lambda conf: ControllerApp(conf, patience)))
"""
DAEMON = "from kuryr_k8s.cni.app import main; main()"
WRONG = {
    "unknown driver": (
        {"kubernetes": {"pod_vif_driver": "nope"}},
        "[kubernetes] pod_vif_driver: there is no 'nope' (installed: nested-vlan, neutron-vif)",
    ),
    "unknown handler": (
        {"kubernetes": {"enabled_handlers": "vif,nope"}},
        "[kubernetes] enabled_handlers: there is no 'nope' (installed: kuryrport, kuryrportpool, "
        "lbaas_spec, loadbalancer, vif)",
    ),
    "handler named twice": (
        {"kubernetes": {"enabled_handlers": "vif,kuryrport,vif"}},
        "two loops of handlers or drivers are named 'vif'",
    ),
    "missing subnet": (
        {"neutron_defaults": {"pod_subnet": "no-such-subnet"}},
        "[neutron_defaults] pod_subnet: no such subnet in Neutron",
    ),
    "missing security group": (
        {"neutron_defaults": {"pod_security_groups": "no-such-group"}},
        "[neutron_defaults] pod_security_groups: there is no security group no-such-group",
    ),
    "wrong password": ({"neutron": {"password": "wrong"}}, "Keystone refuses us"),
    "no project": (
        {"neutron_defaults": {"project": ""}},
        "[neutron_defaults] project is not set",
    ),
    "API server without a name": (
        {"kubernetes": {"kubeconfig": "", "api_root": "https://no.such.host.invalid:6443"}},
        "no.such.host.invalid",
    ),
    "Keystone without a name": (
        {"neutron": {"auth_url": "http://no.such.host.invalid:5000/v3"}},
        "no.such.host.invalid",
    ),
    "certificate of another authority": (
        {"kubernetes": {"ssl_ca_crt_file": "/etc/ssl/certs/ca-certificates.crt"}},
        "CERTIFICATE_VERIFY_FAILED",
    ),
    "unknown token": ({"kubernetes": {"token_file": "/etc/hostname"}}, "Unauthorized"),
}


@pytest.fixture
async def launch(stage, write_conf, kube_server, tmp_path):
    """Start the program with these options; the process."""
    token = tmp_path / "token"
    token.write_text(kube_server.token_for("controller"))
    started = []

    async def start(program=CONTROLLER, **groups):
        kubernetes = {
            "api_root": kube_server.base_url,
            "ssl_ca_crt_file": str(kube_server.ca_file),
            "token_file": str(token),
        }
        groups["kubernetes"] = kubernetes | groups.get("kubernetes", {})
        arguments = ["-c", program, "--config-file", str(write_conf(**groups))]
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable, *arguments, stdout=pipe, stderr=pipe
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.returncode is None:
            process.terminate()  # not killed: the Lease would outlive it
            await process.communicate()


@pytest.mark.parametrize("what", WRONG)
async def test_wrong_configuration_ends_the_start_with_one_line(launch, what):
    options, expected = WRONG[what]
    async with asyncio.timeout(120):
        process = await launch(HURRIED, **options)
        _, printed = await process.communicate()
    told = [line for line in printed.decode().splitlines() if line.startswith("kuryr-k8s-")]
    assert process.returncode == 2, printed.decode()
    assert len(told) == 1
    assert expected in told[0]


async def test_daemon_that_is_refused_ends_its_start_as_well(launch, tmp_path):
    node = {"socket": str(tmp_path / "cni.sock"), "spool_dir": str(tmp_path / "spool")}
    wrong = {"token_file": "/etc/hostname"}
    async with asyncio.timeout(120):
        process = await launch(
            DAEMON, kubernetes=wrong, cni_daemon=node, cni_health_server={"port": "0"}
        )
        _, printed = await process.communicate()
    assert process.returncode == 2, printed.decode()
    assert "kuryr-k8s-daemon: Kubernetes: Unauthorized" in printed.decode()


async def test_neutron_that_is_down_is_waited_for(stage, launch):
    rule = stage.cloud.faults.add(path="/v2.0/", times=None, action=answer(503))
    process = await launch()
    await waits_for_neutron(process)
    rule.remove()
    await stage.cluster.add_pod("web", node=NODE)
    await stage.until_plugged_in("web")


async def test_subnet_that_neutron_does_not_show_yet_is_asked_for_again(stage, launch):
    stage.cloud.faults.add(method="GET", path=r"/subnets/", times=1, action=answer(404))
    process = await launch()
    await waits_for_neutron(process)
    await stage.cluster.add_pod("web", node=NODE)
    await stage.until_plugged_in("web")


async def test_neutron_that_was_down_for_long_may_still_hide_a_group_for_a_while(stage, launch):
    down = stage.cloud.faults.add(path="/v2.0/", times=None, action=answer(503))
    process = await launch(HURRIED)
    await waits_for_neutron(process, times=5)  # it looks for longer than the grace
    stage.cloud.faults.add(method="GET", path=r"/security-groups/", times=1, action=answer(404))
    down.remove()
    await stage.cluster.add_pod("web", node=NODE)
    await stage.until_plugged_in("web")


async def waits_for_neutron(process, times=1):
    """Read what it prints until it has said so."""
    async for line in process.stdout:
        times -= b"waiting for Neutron" in line
        if not times:
            return


async def test_sigterm_ends_it_at_once_and_gives_the_lease_back(stage, launch):
    process = await launch()
    await stage.cluster.add_pod("web", node=NODE)
    await stage.until_plugged_in("web")
    process.terminate()
    async with asyncio.timeout(60):
        await process.communicate()
    assert process.returncode == 0
    lease = await stage.client.get(LEASE)
    assert not lease["spec"].get("holderIdentity")
