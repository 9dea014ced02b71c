"""From an earlier version to this one, and back: controller first, then one daemon after another.

Pods and Services go on working, whichever versions work side by side; then pools go.
"""

import shutil
from dataclasses import dataclass

import pytest

from lab.kubernetes.client import kubectl
from lab.kuryr.installation import CONTROLLER, HEALTH, Installation, daemon
from lab.openstack.rest import Api
from lab.process import run
from lab.progress import Progress
from tests.kit import earlier_version
from tests.lab import product
from tests.lab.cluster import AVAILABLE, addresses, pod, ports_of
from tests.lab.disruptive.upgrade.asking import Outside, asking_pod, count_of_pod
from tests.lab.services import cluster, provider, service, url_of, web

__all__ = ["cluster", "provider"]
pytestmark = [pytest.mark.lab_only, pytest.mark.complete]
NODES = ("node1", "node2")
POLICY = "kuryr-daemon"
MARK = "kuryr-cluster:"
NO_POOLS = {"pool": "noop", "pool_options": {}}
SWEPT = 240  # seconds: two sweeps, and time for a busy machine


@dataclass(frozen=True)
class Versions:
    """The programs of both versions on the lab, with pools and Services.

    :param ordinary: the earlier version without pools.
    """

    ordinary: Installation
    earlier: Installation
    this: Installation

    def use(self, installation, *, name, tell=lambda: None):
        """Replace the controller, or the daemon of a node, by that of a version.

        :param tell: called while neither works.
        """
        installation.supervisor.stop(name)
        tell()
        if name == CONTROLLER:
            installation.register_controller(1)
        else:
            installation.register_daemon(name.removeprefix("kuryr-daemon-"))
        installation.supervisor.start(name)


@pytest.fixture
def versions(configured, tmp_path):
    """Both versions; the lab has this one afterwards."""
    quiet = Progress(quiet=True)
    full = product.CONFIGURATIONS["full"]
    tree = tmp_path / earlier_version.COMMIT
    tree.mkdir()
    earlier_version.unpack(tree)
    ordinary = Installation(progress=quiet, tree=tree, **full | NO_POOLS)
    earlier = Installation(progress=quiet, tree=tree, **full)
    this = Installation(progress=quiet, **full)
    versions = Versions(ordinary, earlier, this)
    this.install()
    earlier.install()
    try:
        yield versions
    finally:
        this.apply()
        for name in (CONTROLLER, *map(daemon, NODES)):
            versions.use(this, name=name)
        shutil.rmtree(earlier.root / tree.name)


class Upgrade:
    """Pods and Services that outlive changes of the version, and clients that ask for them."""

    def __init__(self, cluster, outside):
        self.cluster = cluster
        self.outside = outside
        self.pods = []

    def leads(self):
        """Wait until the controller works."""
        api = Api(f"http://127.0.0.1:{HEALTH}")
        self.cluster.wait_for("the controller leads", lambda: api.get("/status")["leading"])

    def run(self, step):
        """Run a Pod on each node, which reach each other, and a Service for one of them.

        They are not asked all the time: what serves begins to answer, and ends, when it likes.
        """
        cluster, names = self.cluster, [f"{step}-{node}" for node in NODES]
        own = service(step)
        own["spec"]["selector"] = {"app": names[0]}
        pods = (pod(name, node=node) for name, node in zip(names, NODES, strict=True))
        cluster.apply(own, *pods)
        cluster.wait_ready(*names)
        for source, target in zip(names, reversed(names), strict=True):
            cluster.until_pings(source, *addresses(cluster.get("pod", target)))
        cluster.until_active(step)
        assert cluster.answering(names[1], cluster.url_of(step), 1) == {names[0]}
        self.pods += names
        self.note(step)

    def remove(self, name, *options):
        self.pods.remove(name)
        self.cluster.kubectl("delete", "pod", name, *options)

    def until_gone(self, name):
        """Wait until the node and the cloud have let go of the Pod's port."""
        self.cluster.wait_for(f"{name} is gone", lambda: not self.cluster.find("kuryrport", name))

    def state(self):
        """Return what no change of the version may change."""
        pods = {name: self.cluster.get("pod", name) for name in (*self.pods, "asks")}
        recorded = {name: self.cluster.get("kuryrport", name) for name in pods}
        return {
            "Pods": {
                name: (live["metadata"]["uid"], addresses(live), restarts(live))
                for name, live in pods.items()
            },
            "KuryrPorts": {
                name: (found["metadata"]["uid"], ports_of(found))
                for name, found in recorded.items()
            },
            "load balancers": {
                owner: (found["id"], found["vip_address"], found["vip_port_id"])
                for owner, found in self.cluster.load_balancers().items()
            },
            "floating IPs": self.cluster.floating_ips(),
        }

    def note(self, step):
        """Print what clients have asked, and check that nothing was in vain."""
        asked, lost = count_of_pod(self.cluster, "asks")
        from_outside, lost_outside = self.outside.count()
        print(
            f"{step}: {asked} requests to the ClusterIP, {lost} lost; {from_outside} from "
            f"outside, {lost_outside} lost; {len(self.pods)} Pods"
        )
        assert asked
        assert (lost, lost_outside) == (0, 0)


def restarts(live):
    return sum(status["restartCount"] for status in live["status"]["containerStatuses"])


def without_owner(lab):
    """Return the rows of Open vSwitch for ports that are parked and that no Pod has."""
    found = []
    for node in lab.nodes.values():
        database = f"--db=unix:{node.ovs_socket}"
        listing = ("--bare", "--columns=name,external_ids", "find", "interface")
        wanted = "external_ids:kuryr-parked=true"
        text = run([f"{lab.bin}/ovs-vsctl", database, *listing, wanted])
        found += [row for row in text.split("\n\n") if row and "kuryr-container-id" not in row]
    return found


def available(cluster):
    """Return the ids of ports with the name of available ones: a Pod's may not be renamed yet."""
    return {id_ for id_, port in cluster.ports().items() if port["name"] == AVAILABLE}


def install_earlier(versions, upgrade):
    """Let the lab be as the earlier version's installation leaves it, without pools."""
    lab = versions.this.lab
    for name in (CONTROLLER, *map(daemon, NODES)):
        versions.this.supervisor.stop(name)
    kinds = ("validatingadmissionpolicybinding", "validatingadmissionpolicy")
    for kind in kinds:
        kubectl(lab, "delete", kind, POLICY, "--ignore-not-found")
    versions.earlier.apply()
    for name in (CONTROLLER, *map(daemon, NODES)):
        versions.use(versions.ordinary, name=name)
    upgrade.leads()


def test_upgrade_and_the_way_back_lose_no_request_and_leave_nothing_over(
    cluster, versions, tmp_path
):
    earlier, this = versions.earlier, versions.this
    upgrade = Upgrade(cluster, Outside(tmp_path / "outside"))
    install_earlier(versions, upgrade)
    cluster.apply(
        service("web"),
        service("open", type="LoadBalancer"),
        web("first-node1", "node1"),
        web("first-node2", "node2"),
    )
    upgrade.pods = ["first-node1", "first-node2"]
    cluster.wait_ready(*upgrade.pods)
    cluster.until_active("web")
    cluster.answering("first-node1", cluster.url_of("web"), 2)
    cluster.apply(asking_pod("asks", "node2", cluster.url_of("web")))
    cluster.wait_ready("asks")
    (address,) = cluster.wait_for("open has an address", lambda: cluster.ingress("open"))
    with upgrade.outside.asking(url_of(address, 80)):
        cluster.wait_for("a client asks", lambda: count_of_pod(cluster, "asks")[0])
        cluster.wait_for("another one asks", lambda: upgrade.outside.count()[0])
        upgrade.run("ordinary")
        versions.use(earlier, name=CONTROLLER)
        upgrade.leads()
        upgrade.run("earlier")
        there(versions, upgrade)
        back(versions, upgrade)
        this.apply()
        for name in (CONTROLLER, *map(daemon, NODES)):
            versions.use(this, name=name)
        upgrade.leads()
        upgrade.run("again")
        without_pools(upgrade)
        upgrade.note("at the end")
    assert earlier.lab.nodes.keys() == set(NODES)


def there(versions, upgrade):
    """Upgrade: permissions, the controller, one daemon after another."""
    cluster, this = upgrade.cluster, versions.this
    before = upgrade.state()
    this.apply()
    versions.use(this, name=CONTROLLER)
    upgrade.leads()
    assert upgrade.state() == before
    upgrade.run("controller")
    before = upgrade.state()
    gone = "ordinary-node1"

    def delete():
        upgrade.remove(gone, "--wait=false")  # kuryr-cni keeps the request

    versions.use(this, name=daemon("node1"), tell=delete)
    upgrade.until_gone(gone)
    for recorded in ("Pods", "KuryrPorts"):
        before[recorded].pop(gone)
    assert upgrade.state() == before
    upgrade.run("side-by-side")
    versions.use(this, name=daemon("node2"))
    upgrade.run("upgraded")
    cluster.wait_for(
        "all ports bear the mark",
        lambda: all(
            any(tag.startswith(MARK) for tag in port["tags"]) for port in cluster.ports().values()
        ),
    )


def back(versions, upgrade):
    """Go back: one daemon after another, then the controller."""
    earlier = versions.earlier
    before = upgrade.state()
    versions.use(earlier, name=daemon("node2"))
    assert upgrade.state() == before
    upgrade.run("back")
    gone = "earlier-node1"
    versions.use(earlier, name=daemon("node1"), tell=lambda: upgrade.remove(gone, "--wait=false"))
    upgrade.until_gone(gone)
    before = upgrade.state()
    versions.use(earlier, name=CONTROLLER)
    upgrade.leads()
    assert upgrade.state() == before
    upgrade.run("former")


def without_pools(upgrade):
    """Nothing that pools have made is left when there are none any more."""
    cluster = upgrade.cluster
    plain = Installation(
        progress=Progress(quiet=True),
        **product.CONFIGURATIONS["full"] | NO_POOLS,
    )
    plain.supervisor.stop(CONTROLLER)
    plain.register_controller(1)
    plain.supervisor.start(CONTROLLER)
    upgrade.leads()
    before = upgrade.state()
    cluster.wait_for("no KuryrPortPool is left", lambda: not cluster.get("kuryrportpools"))
    cluster.wait_for("nothing is parked", lambda: not without_owner(cluster.lab))
    cluster.wait_for(
        "Neutron has no available port",
        lambda: available(cluster) <= cluster.recorded_ports(),
        seconds=SWEPT,
    )
    assert upgrade.state() == before
    upgrade.run("without-pools")
