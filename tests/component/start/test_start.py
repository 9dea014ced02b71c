"""The start of the programs: one line and exit code 2 for what is in files, or a visible wait."""

import asyncio
import importlib.metadata
import socket
import sys

import pytest

from tests.kit.confs import LEASE, NODE
from tests.kit.fakes.faults import answer
from tests.kit.node_credentials import ACCOUNT, token_request

CONTROLLER = "from kuryr_k8s.app import main; main()"
# With less patience, but with the same outcomes.
HURRIED = """
import sys
from kuryr_k8s.app import NAME, ControllerApp
from kuryr_k8s.patience import Patience
from kuryr_k8s.process import start
patience = Patience(start_retry=0.3, start_said=0.3)
sys.exit(start(NAME, sys.argv[1:], lambda conf: ControllerApp(conf, patience)))
"""
DAEMON = "from kuryr_k8s.cni.app import main; main()"


def installed(group):
    """The names of the entry points that are installed, as messages list them."""
    found = importlib.metadata.entry_points(group=f"kuryr_k8s.controller.{group}")
    return f"(installed: {', '.join(sorted(set(found.names)))})"


WRONG = {
    "unknown driver": (
        {"kubernetes": {"pod_vif_driver": "nope"}},
        f"[kubernetes] pod_vif_driver: there is no 'nope' {installed('drivers.pod_vif')}",
    ),
    "unknown handler": (
        {"kubernetes": {"enabled_handlers": "vif,nope"}},
        f"[kubernetes] enabled_handlers: there is no 'nope' {installed('handlers')}",
    ),
    "NeutronPorts without their handler": (
        {"kubernetes": {"neutron_ports": "bind", "multi_vif_drivers": "named_network"}},
        "[kubernetes] neutron_ports is not off: enabled_handlers must list neutron_port",
    ),
    "handler named twice": (
        {"kubernetes": {"enabled_handlers": "vif,kuryrport,vif"}},
        "two loops of handlers or drivers are named 'vif'",
    ),
    "ports of nodes without their handler": (
        {
            "kubernetes": {"enabled_handlers": "vif,kuryrport"},
            "neutron_defaults": {"node_subnet": "any"},
        },
        "[neutron_defaults] node_subnet: add node to [kubernetes] enabled_handlers",
    ),
    "no project": (
        {"neutron_defaults": {"project": ""}},
        "[neutron_defaults] project is not set",
    ),
}

# What only an answer tells, or its absence.
WAITED = {
    "missing subnet": (
        {"neutron_defaults": {"pod_subnet": "no-such-subnet"}},
        "[neutron_defaults] pod_subnet: no such subnet in Neutron",
    ),
    "missing security group": (
        {"neutron_defaults": {"pod_security_groups": "no-such-group"}},
        "[neutron_defaults] pod_security_groups: there is no security group no-such-group",
    ),
    "wrong password": ({"neutron": {"password": "wrong"}}, "Keystone refuses us"),
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
    "no token": ({"kubernetes": {"token_file": "/nowhere/token"}}, "the token cannot be read"),
    "no client certificate": (
        {
            "kubernetes": {
                "token_file": "/nowhere/token",
                "ssl_client_crt_file": "/nowhere/node.pem",
            }
        },
        "there is no /nowhere/node.pem",
    ),
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


@pytest.mark.parametrize("what", WAITED)
async def test_what_an_api_answers_is_waited_for(launch, what):
    options, expected = WAITED[what]
    process = await launch(HURRIED, **options)
    async with asyncio.timeout(120):
        said = await waits_for(process, b"")
    assert expected in said
    assert process.returncode is None


@pytest.fixture
async def told(tmp_path, monkeypatch):
    """Wait until a program tells systemd something that begins so."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.setblocking(False)
        channel.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))

        async def until(text):
            async with asyncio.timeout(60):
                loop = asyncio.get_running_loop()
                while not (await loop.sock_recv(channel, 4096)).startswith(text.encode()):
                    pass

        yield until


@pytest.fixture
def launch_daemon(launch, tmp_path):
    """Start the daemon of the node; the process, and where it looks for its token."""

    async def start(secret, **options):
        token = tmp_path / "token_of_daemon"
        if secret is not None:
            token.write_text(secret)
        node = {"socket": str(tmp_path / "cni.sock"), "spool_dir": str(tmp_path / "spool")}
        process = await launch(
            DAEMON,
            kubernetes={"token_file": str(token), "node_name": NODE},
            cni_daemon=node | options,
            cni_health_server={"port": "0"},
        )
        return process, token

    return start


@pytest.mark.usefixtures("stage")
@pytest.mark.parametrize("content", ["unknown", None])
async def test_daemon_without_a_token_that_counts_waits_for_one(
    launch_daemon, kube_server, content
):
    process, token = await launch_daemon(content)
    async with asyncio.timeout(120):
        said = await waits_for(process, b"Kubernetes")
        assert "the token cannot be read" in said if content is None else "Unauthorized" in said
        token.write_text(kube_server.token_for("daemon"))
        await goes_on(process)
    assert process.returncode is None


async def test_daemon_whose_token_names_no_node_waits_and_says_what_it_needs(stage, launch_daemon):
    answer = await stage.client.request("POST", f"{ACCOUNT}/token", token_request(""))
    process, _ = await launch_daemon(answer["status"]["token"])
    async with asyncio.timeout(120):
        said = await waits_for(process, b"permission to write")
    assert "the credentials of the daemon name no node: it needs a token that is bound" in said
    assert process.returncode is None


async def test_unit_of_the_daemon_is_started_before_its_kubelet_registers_the_node(
    stage, launch_daemon, kube_server, told
):
    """The kubelet may be ordered after the daemon."""
    await stage.client.delete(f"/api/v1/nodes/{NODE}")
    await launch_daemon(kube_server.token_for("daemon"), ovsdb_connection="unix:/no-switch")
    await told("READY=1")
    await told("STATUS=the node is not announced yet: waiting for the Node")


async def test_subnet_that_is_made_later_is_found(stage, launch):
    network, [subnet, *others] = stage.cloud.pods["id"], stage.cloud.pods["subnets"]
    lost = stage.cloud.subnets.pop(subnet)
    process = await launch(HURRIED, neutron_defaults={"pod_subnet": ",".join([subnet, *others])})
    await waits_for(process, b"Neutron", times=3)
    stage.cloud.subnets[subnet] = lost
    await stage.cluster.add_pod("web", node=NODE)
    vif = await stage.until_plugged_in("web")
    assert vif["network"]["versioned_object.data"]["id"] == network


async def test_neutron_that_is_down_is_waited_for(stage, launch):
    rule = stage.cloud.faults.add(path="/v2.0/", times=None, action=answer(503))
    process = await launch()
    await waits_for(process, b"Neutron")
    rule.remove()
    await stage.cluster.add_pod("web", node=NODE)
    await stage.until_plugged_in("web")


async def test_subnet_that_neutron_does_not_show_yet_is_asked_for_again(stage, launch):
    stage.cloud.faults.add(method="GET", path=r"/subnets/", times=1, action=answer(404))
    process = await launch()
    await waits_for(process, b"Neutron")
    await stage.cluster.add_pod("web", node=NODE)
    await stage.until_plugged_in("web")


async def waits_for(process, api, times=1):
    """Read what the program prints until it has said so often enough; the last such line."""
    async for line in process.stdout:
        times -= b"waiting for " + api in line
        if not times:
            return line.decode()
    raise AssertionError((await process.stderr.read()).decode())


async def goes_on(process):
    """Read what the program prints until it has what it waited for."""
    async for line in process.stdout:
        if b"what was waited for is there" in line:
            return
    raise AssertionError((await process.stderr.read()).decode())


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
