"""The demonstration: `python -m lab.demo`, or `make demo`.

Brings up the lab and the product, has ports made ahead and parked on the nodes, starts four Pods
on two nodes, and shows what came of it: each Pod beside its Neutron port and what that was before,
pings on a node, between nodes and to another network, and the pools; then two Services and an
Ingress with TLS, asked without a pause from a Pod and from outside while the Pods behind them
become more and fewer.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from typing import Any

from lab import facts
from lab.demo import services as demo_services
from lab.demo.services import NAME
from lab.kuryr import router
from lab.kuryr.installation import CLUSTER_TAG, CONTROLLER, IN_PODS, Installation, kubectl
from lab.lifecycle.lab import Lab
from lab.paths import Paths
from lab.process import CommandError, run, wait_until
from lab.progress import Progress
from lab.suite import cloud_remains, interrupted, orphans

REPLICAS = 4
PATIENCE = 240  # seconds
DRAIN = 15  # seconds
_RECORDS, _POOLS = ("get", "kuryrports", "-o"), ("get", "kuryrportpools")
Json = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """A Pod beside its port.

    `before`: the port's status in Neutron while it was parked; empty if it was not. `seconds`:
    from the Deployment's creation to Ready.
    """

    pod: str
    node: str
    addresses: tuple[str, ...]
    port: str
    before: str
    status: str
    seconds: float


def main() -> int:
    """Run the demonstration, or remove it with the argument `down`.

    With the argument `--in-pods` the product itself runs as Pods.

    :returns: the exit code: 1 where the test suite uses this lab.
    """
    if sys.argv[1:] == ["down"]:
        return down()
    as_pods = sys.argv[1:] == [IN_PODS]
    progress = Progress()
    paths = Paths.from_environment()
    paths.create()
    with orphans.only_run(paths) as alone:
        if not alone:
            print("make test runs on this lab: wait for its end", file=sys.stderr)
            return 1
        return run_demo(paths, progress, as_pods=as_pods)


def run_demo(paths: Paths, progress: Progress, *, as_pods: bool = False) -> int:
    """Show the whole demonstration.

    :param as_pods: let the product's own programs run as Pods.
    :returns: the exit code.
    """
    orphans.clear(paths)
    Lab(progress=progress).up()
    installation = Installation(
        progress=progress, pool="neutron", with_services=True, with_router=True
    )
    installation.up(as_pods=as_pods)
    lab = installation.lab
    if as_pods:
        show_programs(lab)
    interrupted.clear(lab)
    with progress.during("remove what interrupted tests have left in the cloud"):
        cloud_remains.clear(lab)
    with progress.during("remove what an earlier demonstration has left"):
        remove(lab)
    hosts = {name: node.chassis for name, node in lab.nodes.items()}
    with progress.during(f"park {REPLICAS} ports on each node"):
        installation.pools.populate(hosts, REPLICAS, PATIENCE)  # wherever the Pods will be
    before = parked(lab)
    progress.note(f"{len(before)} ports are parked")
    kubectl(lab, "create", "--filename=-", stdin=json.dumps(deployment(lab.images)))
    with progress.during(f"start {REPLICAS} Pods"):
        ready = wait_ready(lab)
    progress.note(f"{REPLICAS} Pods are Ready")
    rows = table(lab, ready, before)
    show(rows)
    failed = pings(lab, rows)
    show_pools(lab)
    with progress.during("make a ClusterIP and a LoadBalancer Service, and an Ingress"):
        public = demo_services.create(lab, progress)
    with progress.during("ask all of them while their Pods become more and fewer"):
        answers = demo_services.grow_and_shrink(lab, public, progress)
    failed += demo_services.show(lab, public, answers)
    print(NEXT)
    return 1 if failed else 0


def show_programs(lab: facts.Lab) -> None:
    """Print the Pods in which the controller and the daemons run."""
    print("\nThe controller and the daemons (kubectl -n kube-system get pods)")
    labels = ("-l", "app in (kuryr-controller, kuryr-daemon)", "-o", "wide")
    print(kubectl(lab, "-n", "kube-system", "get", "pods", *labels))


def down() -> int:
    """Remove the demonstration and the product; the lab goes with `make lab-down`."""
    try:
        installation = Installation()
    except FileNotFoundError:
        print("nothing is up")
        return 0
    try:
        remove(installation.lab)
        if installation.in_pods.entered or installation.supervisor.ready(CONTROLLER):
            installation.pools.drain(PATIENCE)
            router.down(installation.lab, installation.admin_socket)
    except CommandError as error:
        print(error, file=sys.stderr)
    installation.down()
    return 0


def remove(lab: facts.Lab) -> None:
    """Delete the Services and the Deployment, and wait until the Pods have released their ports.

    :raises CommandError: they have not in time.
    """
    demo_services.remove(lab)
    kubectl(lab, "delete", "deployment", NAME, "--ignore-not-found", "--timeout=240s")
    kubectl(lab, "wait", "--for=delete", "pod", "-l", f"app={NAME}", "--timeout=240s")
    if not wait_until(lambda: f"/{NAME}-" not in kubectl(lab, *_RECORDS, "name"), PATIENCE, 0.5):
        raise CommandError(f"after {PATIENCE} s not all KuryrPorts of {NAME} are gone")


def wait_ready(lab: facts.Lab) -> dict[str, float]:
    """Measure the seconds from now until each Pod is Ready.

    The Pods are listed every tenth of a second, since the API server's own times are whole
    seconds.

    :returns: the seconds by the Pods' names.
    :raises CommandError: not all are Ready in time.
    """
    begin = time.monotonic()
    ready: dict[str, float] = {}
    while len(ready) < REPLICAS:
        if time.monotonic() - begin > PATIENCE:
            raise CommandError(f"after {PATIENCE} s {len(ready)} of {REPLICAS} Pods are Ready")
        for pod in pods(lab):
            name, conditions = pod["metadata"]["name"], pod["status"].get("conditions", ())
            if any(c["type"] == "Ready" and c["status"] == "True" for c in conditions):
                ready.setdefault(name, time.monotonic() - begin)
        time.sleep(0.1)
    return ready


def pods(lab: facts.Lab) -> list[Json]:
    """List the Deployment's Pods."""
    printed = kubectl(lab, "get", "pods", "-l", f"app={NAME}", "-o", "json")
    items: list[Json] = json.loads(printed)["items"]
    return items


def deployment(images: list[str]) -> Json:
    """Describe four small web servers, spread over the nodes."""
    labels = {"app": NAME}
    image = next(image for image in images if "busybox" in image)
    serve = "mkdir -p /www && hostname > /www/index.html && exec httpd -f -p 8080 -h /www"
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "nodeTaintsPolicy": "Honor",  # a node in a virtual machine may be there, and is kept apart
        "labelSelector": {"matchLabels": labels},
    }
    container = {
        "name": "web",
        "image": image,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", serve],
        "readinessProbe": {"httpGet": {"port": 8080, "path": "/"}, "periodSeconds": 1},
        # It serves on while its load balancers are told, which is over in a second or two.
        "lifecycle": {"preStop": {"sleep": {"seconds": DRAIN}}},
    }
    spec = {
        "terminationGracePeriodSeconds": DRAIN + 1,
        "topologySpreadConstraints": [spread],
        "containers": [container],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": NAME},
        "spec": {
            "replicas": REPLICAS,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def parked(lab: facts.Lab) -> dict[str, str]:
    """Return the Neutron status of the ports that the nodes report as parked, by their ids."""
    ports = {port["ID"]: port["Status"] for port in neutron_ports(lab)}
    pools = json.loads(kubectl(lab, *_POOLS, "-o", "json"))["items"]
    kept = [port for pool in pools for port in pool.get("status", {}).get("parked", {})]
    return {port: ports[port] for port in kept if port in ports}


def table(lab: facts.Lab, ready: dict[str, float], before: dict[str, str]) -> list[Row]:
    """Join the Pods with their ports, as Kubernetes and Neutron know them."""
    ports = {port["ID"]: port for port in neutron_ports(lab)}
    rows = []
    recorded = json.loads(kubectl(lab, *_RECORDS, "json"))["items"]
    by_pod = {item["spec"]["podUid"]: item for item in recorded}
    for pod in sorted(pods(lab), key=lambda pod: pod["spec"]["nodeName"]):
        kuryrport = by_pod[pod["metadata"]["uid"]]
        port_id = kuryrport["status"]["vifs"]["eth0"]["vif"]["versioned_object.data"]["id"]
        rows.append(
            Row(
                pod=pod["metadata"]["name"],
                node=pod["spec"]["nodeName"],
                addresses=tuple(ip["ip"] for ip in pod["status"]["podIPs"]),
                port=port_id,
                before=before.get(port_id, ""),
                status=ports[port_id]["Status"] if port_id in ports else "missing",
                seconds=ready[pod["metadata"]["name"]],
            )
        )
    return rows


def neutron_ports(lab: facts.Lab) -> list[Json]:
    """List the cluster's ports with OpenStack's own client."""
    env = {"OS_CLIENT_CONFIG_FILE": lab.cloud.clouds_yaml, "OS_CLOUD": "kuryr"}
    command = ["port", "list", "--tags", CLUSTER_TAG, "--long", "-f", "json"]
    found: list[Json] = json.loads(run([f"{lab.openstack_venv}/bin/openstack", *command], env=env))
    return found


def show(rows: list[Row]) -> None:
    """Print a table of the Pods and their ports."""
    print("\nPods and their Neutron ports")
    ports = ("NEUTRON PORT", "BEFORE THE POD", "NOW")
    heads = ("POD", "NODE", "ADDRESSES", *ports, "READY AFTER")
    cells = [
        (
            *(r.pod, r.node, " ".join(r.addresses), r.port),
            *(f"parked, {r.before}" if r.before else "not parked", r.status),
            f"{r.seconds:.1f} s",
        )
        for r in rows
    ]
    widths = [max(len(line[i]) for line in [heads, *cells]) for i in range(len(heads))]
    for line in [heads, *cells]:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)))
    print(PARKED)


def pings(lab: facts.Lab, rows: list[Row]) -> int:
    """Ping from the first Pod over both families.

    :returns: how many of the pings failed.
    """
    first = rows[0]
    near = next((row for row in rows[1:] if row.node == first.node), None)
    far = next((row for row in rows if row.node != first.node), None)
    targets: list[tuple[str, tuple[str, ...]]] = []
    if near:
        targets.append((f"{near.pod}, same node", near.addresses))
    if far:
        targets.append((f"{far.pod}, on {far.node}", far.addresses))
    targets.append(("vm1, a VM's port on another Neutron network", (lab.vm1.v4, lab.vm1.v6)))
    print(f"\nPings from {first.pod} on {first.node}")
    failed = 0
    for what, addresses in targets:
        for address in addresses:
            family = "-6" if ":" in address else "-4"
            command = ("ping", family, "-c", "3", "-i", "0.2", "-W", "10", address)
            try:
                printed = kubectl(lab, "exec", first.pod, "--", *command)
                result = printed.strip().splitlines()[-1]
            except CommandError as error:
                failed += 1
                result = f"FAILED: {str(error).splitlines()[-1]}"
            print(f"  {address:<28} {what:<48} {result}")
    return failed


def show_pools(lab: facts.Lab) -> None:
    """Print the pools as kubectl does, once their numbers count the Pods."""

    def counted() -> bool:
        pools = json.loads(kubectl(lab, *_POOLS, "-o", "json"))["items"]
        in_use = [int(pool.get("status", {}).get("inUse", 0)) for pool in pools]
        return sum(in_use) >= REPLICAS

    wait_until(counted, PATIENCE, pause=0.5)
    print("\nPools of ports for Pods to come (kubectl get kuryrportpools)")
    print(kubectl(lab, *_POOLS).rstrip())


PARKED = """
"parked": the node had plugged the port into Open vSwitch before there was a Pod for it. The status
is Neutron's at that time: ACTIVE, or DOWN if OVN had not reported the plugged port to Neutron yet,
which it does within seconds."""
NEXT = """
It keeps running. What to try next:
  eval "$(python3 -m lab env)"              kubectl, openstack, ovs-vsctl for this lab
  kubectl get kuryrports -A -o wide         the record of every Pod's interfaces
  openstack port list --tags kuryr-lab      the same ports in Neutron, and those of the pools
  kuryr-k8s pools list                      the pools; populate and free fill and empty them
  kubectl scale deployment kuryr-demo --replicas 10
  curl http://<EXTERNAL-IP of kuryr-demo-public>/      each answer names its Pod
  kubectl describe service kuryr-demo-public           what was made for it
  openstack secret list                     the certificate of shop.demo in Barbican
  kubectl get secret kuryr-demo -o yaml     where it comes from; a new one there is shown at once
  kuryr-k8s l7-router show                  where the L7 router of all Ingresses is
  openstack loadbalancer status show <name>            the same in Octavia
  kubectl exec kuryr-demo-client -- nslookup kubernetes.default
  kubectl exec deploy/kuryr-demo -- ip addr
  python3 -m lab status                     everything that runs; logs NAME shows its log
  python3 -m lab restart kuryr-controller   Pods do not notice
  python3 -m lab up --vm 1                  one more node, a virtual machine behind a trunk port,
  python3 -m lab.kuryr up --pool neutron    for Pods with nodeName: vmnode1
  make demo-down                            remove the Pods and the product
  make lab-down                             stop the lab"""


if __name__ == "__main__":
    sys.exit(main())
