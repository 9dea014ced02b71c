"""Parked ports on the real stack: ACTIVE for Neutron, deaf and dumb until a Pod has them.

The ports and the node's KuryrPortPool are made here, and the Pods are sandboxes without a kubelet.
The controller is away, also when the lab comes up after a reboot: without pools it would delete
the KuryrPortPool.
"""

import contextlib
import json
import re
import subprocess
from pathlib import Path

import pytest

from bench.node import prepared_pods
from kuryr_k8s.cni.netlink.parked_pairs import lower
from kuryr_k8s.k8s.resources import KURYRPORTPOOLS
from lab.kuryr.installation import CONTROLLER, Installation, daemon
from lab.lifecycle import crash
from lab.lifecycle.lab import Lab
from lab.openstack import cloud
from lab.openstack.config import NEUTRON_PORT
from lab.openstack.rest import Api
from lab.process import run, wait_until
from lab.progress import Progress
from tests.lab import product
from tests.lab.cluster import PATIENCE

NODE = "node2"  # one that can crash alone
FIRST = 5  # pings
pytestmark = [pytest.mark.lab_only, pytest.mark.product("plain")]


class Bench:
    """A node, a Pod on it that asks others whether they are there, and parked ports."""

    def __init__(self, installation, pods):
        self.lab, self.node = installation.lab, installation.lab.nodes[NODE]
        self.supervisor = installation.supervisor
        self.asker, *self.parked = pods
        self._neutron = Api(f"http://127.0.0.1:{NEUTRON_PORT}/v2.0", cloud.admin_token())

    def cni(self, command, pod):
        """Run kuryr-cni as the node's containerd does: its result."""
        conflist = json.loads((Path(self.node.cni_conf_dir) / "10-kuryr.conflist").read_text())
        config = {**conflist["plugins"][0], "cniVersion": "1.0.0", "name": "kuryr"}
        environ = {
            "CNI_COMMAND": command,
            "CNI_CONTAINERID": f"c-{pod.name}",
            "CNI_NETNS": f"/run/netns/{sandbox(pod)}",
            "CNI_IFNAME": "eth0",
            "CNI_PATH": self.node.cni_bin_dir,
            "CNI_ARGS": pod.cni_args,
        }
        done = subprocess.run(
            [f"{self.node.cni_bin_dir}/kuryr-cni"],
            input=json.dumps(config).encode(),
            env=environ,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return json.loads(done.stdout) if done.stdout else None

    def on_node(self, *command, check=True):
        return run(["ip", "netns", "exec", self.node.netns, *command], check=check)

    def link(self, name):
        [found] = json.loads(self.on_node("ip", "-s", "-j", "link", "show", name))
        return found

    def statuses(self):
        ports = self._neutron.get("/ports", tags=prepared_pods.TAG)["ports"]
        return {port["id"]: port["status"] for port in ports}

    def are_active(self, pods):
        found = self.statuses()
        return all(found[pod.vif.id] == "ACTIVE" for pod in pods)

    def vsctl(self, *command):
        return run([f"{self.lab.bin}/ovs-vsctl", f"--db=unix:{self.node.ovs_socket}", *command])

    def row(self, pod):
        """OVS's row of the port: its id, number, and whether it is installed."""
        columns = "--columns=_uuid,ofport,external_ids"
        wanted = f"external_ids:iface-id={pod.vif.id}"
        text = self.vsctl("--format=json", columns, "find", "interface", wanted)
        [[identity, ofport, ids]] = json.loads(text)["data"]
        return identity, ofport, dict(ids[1]).get("ovn-installed")

    def connections(self, pod):
        """What OVS remembers of connections of this port."""
        wanted = f"external_ids:ct-zone-{pod.vif.id}"
        zone = self.vsctl("get", "bridge", "br-int", wanted).strip().strip('"')
        control = f"{self.node.ovs_rundir}/ovs-vswitchd.ctl"
        dump = ["dpctl/dump-conntrack", "netdev@ovs-netdev"]
        text = run([f"{self.lab.bin}/ovs-appctl", "-t", control, *dump])
        return [line for line in text.splitlines() if f"zone={zone}" in line.split(",")]

    def pings(self, asker, pod, seconds=10):
        """Return how many of the first FIRST pings are answered.

        With a deadline ping goes on until it has so many answers; without one it waits for the
        last no longer than for a fifth of a second, and what comes late is not lost.
        """
        command = ["ping", f"-c{FIRST}", "-i0.2", f"-w{seconds}", address(pod)]
        text = run(["ip", "netns", "exec", sandbox(asker), *command], check=False)
        answered = {int(number) for number in re.findall(r"icmp_seq=(\d+) ttl=", text)}
        return len(answered & set(range(1, FIRST + 1)))

    def reaches(self, asker, pod):
        """Return whether the first pings are answered: a busy machine may lose one of them, and a
        port that is plugged only now loses more."""
        return self.pings(asker, pod) >= FIRST - 1

    def told_parked(self):
        """Ids that the daemon has reported."""
        command = ["get", "kuryrportpool", NODE, "-o", "json"]
        return set(json.loads(kubectl_text(self.lab, *command))["status"].get("parked", {}))


def kubectl_text(lab, *arguments):
    config = f"--kubeconfig={lab.kubernetes.admin_kubeconfig}"
    return run([f"{lab.bin}/kubectl", config, *arguments])


def sandbox(pod):
    return f"parktest-{pod.name}"


def address(pod):
    return pod.vif.network.subnets[0].ips[0].address


@pytest.fixture(scope="module")
def bench():
    product.prepared()
    product.ensure("plain")
    installation = Installation(progress=Progress(quiet=True))
    node = installation.lab.nodes[NODE]
    with contextlib.ExitStack() as stack:
        controller = installation.supervisor.find(CONTROLLER).component
        installation.supervisor.forget(CONTROLLER)
        stack.callback(installation.supervisor.start, CONTROLLER)
        stack.callback(installation.supervisor.register, controller)
        pods = stack.enter_context(prepared_pods.pods(installation.lab, node, 1, parked=4))
        for pod in pods:
            run(["ip", "netns", "add", sandbox(pod)])
            stack.callback(run, ["ip", "netns", "del", sandbox(pod)])
        bench = Bench(installation, pods)
        bench.cni("ADD", bench.asker)
        stack.callback(bench.cni, "DEL", bench.asker)
        assert wait_until(lambda: bench.are_active(pods), PATIENCE)
        yield bench


def counted(link):
    stats = link["stats64"]
    return stats["rx"]["packets"], stats["tx"]["packets"]


def test_parked_port_is_active_and_nothing_passes_it(bench):
    pod = bench.parked[0]
    host, below = pod.vif.vif_name, lower(pod.vif.vif_name)
    heard = run_capture(bench, host)
    assert bench.pings(bench.asker, pod, 2) == 0
    shout(bench.asker)  # ARP for it has been asked; and this goes to all
    frames = heard()
    mac = bytes.fromhex(pod.vif.address.replace(":", ""))
    assert [frame for frame in frames if frame[6:12] == mac] == []
    assert counted(bench.link(below)) == (0, 0)
    assert counted(bench.link(host))[0] == 0
    assert b"down" in sent_from(bench, below).lower()
    assert bench.are_active(bench.parked)


def test_pod_has_traffic_at_once_and_the_port_stays_active(bench):
    pod, other = bench.parked[:2]
    before = bench.row(pod)
    for each in (pod, other):
        bench.cni("ADD", each)
    assert bench.reaches(bench.asker, pod)
    assert bench.reaches(pod, other)
    assert bench.reaches(other, bench.asker)
    assert bench.row(pod) == before
    assert bench.are_active(bench.parked)
    assert fetched(pod, other) == 5_000_000
    assert bench.connections(pod)
    for each in (pod, other):
        bench.cni("DEL", each)
    assert bench.connections(pod) == []
    assert bench.row(pod) == before
    assert bench.pings(bench.asker, pod, 2) == 0
    passed = counted(bench.link(lower(pod.vif.vif_name)))
    shout(bench.asker)
    assert counted(bench.link(lower(pod.vif.vif_name))) == passed
    assert bench.are_active(bench.parked)


def test_next_pod_of_the_port_is_reached_without_delay(bench):
    pod = bench.parked[2]
    for _ in range(3):
        bench.cni("ADD", pod)
        assert bench.reaches(bench.asker, pod)
        bench.cni("DEL", pod)


def test_killed_daemon_keeps_what_is_parked(bench):
    rows = [bench.row(pod) for pod in bench.parked]
    bench.cni("ADD", bench.parked[0])
    bench.supervisor.kill(daemon(NODE))
    bench.supervisor.start(daemon(NODE))
    assert bench.reaches(bench.asker, bench.parked[0])
    bench.cni("DEL", bench.parked[0])
    assert [bench.row(pod) for pod in bench.parked] == rows
    bench.cni("ADD", bench.parked[1])
    assert bench.reaches(bench.asker, bench.parked[1])
    bench.cni("DEL", bench.parked[1])
    assert [bench.row(pod) for pod in bench.parked] == rows


def test_port_to_remove_is_unplugged_and_reported(bench):
    pod = bench.parked.pop()
    change = {"spec": {"ports": {pod.vif.id: {"state": "remove"}}}}
    command = [
        "patch",
        KURYRPORTPOOLS.plural,
        NODE,
        "--type=merge",
        f"--patch={json.dumps(change)}",
    ]
    kubectl_text(bench.lab, *command)
    assert wait_until(lambda: pod.vif.id not in bench.told_parked(), PATIENCE)
    assert not bench.on_node("ip", "-j", "link", "show", pod.vif.vif_name, check=False).strip()
    assert wait_until(lambda: bench.statuses()[pod.vif.id] == "DOWN", PATIENCE)


def test_reboot_of_the_node_parks_anew(bench):
    before = [bench.row(pod) for pod in bench.parked]
    lab = Lab(progress=Progress(quiet=True))
    [node] = [each for each in lab.nodes if each.name == NODE]
    bench.cni("DEL", bench.asker)
    crash.crash(lab, node, reboot=True)

    def made_again():
        pairs = zip(bench.parked, before, strict=True)
        return all(is_new(bench, pod, old) for pod, old in pairs)

    assert wait_until(made_again, PATIENCE)
    parked = {pod.vif.id for pod in bench.parked}
    assert wait_until(lambda: bench.told_parked() == parked, PATIENCE)
    assert wait_until(lambda: bench.are_active(bench.parked), PATIENCE)
    for pod in bench.parked:
        assert "UP" not in bench.link(lower(pod.vif.vif_name))["flags"]


def is_new(bench, pod, before):
    try:
        now = bench.row(pod)
    except ValueError:
        return False
    return now[0] != before[0] and now[2] == "true"


def run_capture(bench, device):
    """Begin to listen at a device of the node; the answer ends it: all frames that came in."""
    script = (
        "import socket, sys\n"
        "s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))\n"
        f"s.bind(({device!r}, 0))\n"
        "print('listening', flush=True)\n"
        "sys.stdin.read()\n"
        "s.setblocking(False)\n"
        "try:\n"
        "    while True:\n"
        "        frame, about = s.recvfrom(2048)\n"
        "        if about[2] != socket.PACKET_OUTGOING:\n"
        "            print(frame.hex())\n"
        "except BlockingIOError:\n"
        "    pass\n"
    )
    process = subprocess.Popen(
        ["ip", "netns", "exec", bench.node.netns, "python3", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "listening\n"

    def heard():
        out, _ = process.communicate()
        return [bytes.fromhex(line) for line in out.split()]

    return heard


def sent_from(bench, device):
    """Try to send a frame from a device of the node; what the kernel says to it."""
    script = (
        "import socket\n"
        "s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)\n"
        f"s.bind(({device!r}, 0))\n"
        "s.send(bytes([255] * 6) + bytes(60))\n"
    )
    done = subprocess.run(
        ["ip", "netns", "exec", bench.node.netns, "python3", "-c", script],
        capture_output=True,
        check=False,
    )
    return done.stderr


def shout(pod):
    """A broadcast, and ARP requests, from a Pod to its whole network."""
    script = (
        "import socket\n"
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)\n"
        "[s.sendto(b'x', ('255.255.255.255', 9)) for _ in range(5)]\n"
    )
    run(["ip", "netns", "exec", sandbox(pod), "python3", "-c", script])


def fetched(server, client):
    """Bytes of a download by TCP from one Pod to another."""
    script = (
        "import socket\n"
        "s = socket.create_server(('', 8080))\n"
        "print('ready', flush=True)\n"
        "c, _ = s.accept()\n"
        "c.sendall(bytes(5_000_000))\n"
        "c.close()\n"
    )
    with subprocess.Popen(
        ["ip", "netns", "exec", sandbox(server), "python3", "-c", script],
        stdout=subprocess.PIPE,
        text=True,
    ) as serving:
        assert serving.stdout.readline() == "ready\n"
        fetch = (
            "import socket\n"
            f"c = socket.create_connection(({address(server)!r}, 8080), 60)\n"
            "print(sum(iter(lambda: len(c.recv(65536)), 0)))\n"
        )
        done = run(["ip", "netns", "exec", sandbox(client), "python3", "-c", fetch])
        serving.wait(60)
    return int(done)
