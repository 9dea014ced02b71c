"""One node's containerd and kubelet, with nothing shared with another node's.

Two kubelets on one machine would otherwise fight over the cgroup of the pods, the directory of
their logs, ports, sockets, and where the pods' network namespaces are mounted.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection
from pathlib import Path

from lab import topology
from lab.host import cgroups, mounts
from lab.install import binaries, images
from lab.lifecycle import probes
from lab.lifecycle.supervisor import Component, Supervisor
from lab.paths import Paths, write_atomic
from lab.process import arguments, marked, run
from lab.topology import Node, Worker

OTHER_RUNTIME = "other"
CNI_PLUGINS = ("bridge", "ptp", "loopback", "host-local", "portmap", "bandwidth", "tuning")


def forget_former(paths: Paths, current: Collection[str]) -> None:
    """Delete the Node objects of the lab's nodes that are gone, once the API server answers.

    Their kubelets were stopped with them, perhaps while the API server was down.
    """
    most = topology.MOST_NODES
    known: list[Node | Worker] = [*topology.nodes(most), *topology.workers(most)]
    former = [node.name for node in known if node.name not in current]
    kubectl = [str(paths.bin / "kubectl"), f"--kubeconfig={paths.admin_kubeconfig}"]
    run([*kubectl, "delete", "node", *former, "--ignore-not-found", "--timeout=60s"])


def components(paths: Paths, node: Node | Worker) -> list[Component]:
    """List the node's daemons: containerd and kubelet."""
    return [_containerd(paths, node), _kubelet(paths, node)]


def _containerd(paths: Paths, node: Node | Worker) -> Component:
    own = paths.node(node.name)
    return Component(
        f"containerd-{node.name}",
        ("containerd", "--config", str(own.root / "containerd.toml")),
        ready=(
            probes.command(
                "ctr", "--address", str(own.containerd_socket), "version", pattern="Server"
            ),
        ),
        netns=node.netns,
        hostname=node.name,  # what hostNetwork Pods see
        timeout=60,
        keeps_children=True,
        files=(str(own.root / "containerd.toml"),),
    )


def _kubelet(paths: Paths, node: Node | Worker) -> Component:
    own, pki = paths.node(node.name), paths.pki
    object_url = f"{topology.API_URL}/api/v1/nodes/{node.name}"
    return Component(
        f"kubelet-{node.name}",
        (
            "kubelet",
            f"--config={own.root}/kubelet.json",
            f"--kubeconfig={pki}/kubelet-{node.name}.kubeconfig",
            f"--root-dir={own.kubelet}",
            f"--cert-dir={own.kubelet}/pki",
            f"--hostname-override={node.name}",
            f"--node-ip={node.internal_v4},{node.internal_v6}",
        ),
        ready=(
            probes.http(f"http://{node.internal_v4}:10248/healthz", pattern="ok"),
            probes.http(
                object_url,
                f'"name": ?"{node.name}"',
                f"{pki}/ca.crt",
                f"{pki}/admin.crt",
                f"{pki}/admin.key",
            ),
        ),
        needs=(f"containerd-{node.name}", "kube-apiserver"),
        netns=node.netns,
        timeout=90,
        grace=4,
        files=(f"{own.root}/kubelet.json", f"{pki}/kubelet-{node.name}.crt"),
    )


def prepare(paths: Paths, supervisor: Supervisor, node: Node) -> None:
    """Write the node's files and make its cgroup, before containerd starts."""
    write_files(paths, node)
    cgroups.create(node.cgroup)
    record = supervisor.find(f"containerd-{node.name}")
    if (record is None or not record.alive) and not _shims(paths, node):
        _forget_sandboxes(paths, node)


def write_files(paths: Paths, node: Node | Worker) -> None:
    """Write the node's directories, CNI plugins and configuration."""
    own = paths.node(node.name)
    for path in (
        own.containerd,
        own.kubelet,
        own.pod_logs,
        own.static_pods,
        own.cni_conf,
        other_cni_conf(own.cni_conf),
        own.cni_bin,
    ):
        path.mkdir(parents=True, exist_ok=True)
    _link_plugins(paths, own.cni_bin)
    write_atomic(paths.etc / "resolv.conf", "options ndots:1\n")
    write_atomic(own.root / "containerd.toml", _containerd_config(paths, node))
    write_atomic(own.root / "kubelet.json", json.dumps(_kubelet_config(paths, node), indent=1))


def other_cni_conf(cni_conf: Path) -> Path:
    """Return the directory with the CNI configuration of the other runtime.

    :param cni_conf: that of the default one.
    """
    return cni_conf.with_name(f"{cni_conf.name}-{OTHER_RUNTIME}")


def load_images(paths: Paths, node: Node) -> None:
    """Import the images, after containerd has started."""
    images.load(paths, paths.node(node.name).containerd_socket)


def _forget_sandboxes(paths: Paths, node: Node) -> None:
    """Let containerd see what it sees after a reboot: nothing of the pods lives any more."""
    state = paths.node(node.name).root / "containerd-state"
    mounts.unmount_below(state)
    shutil.rmtree(state, ignore_errors=True)


def _shims(paths: Paths, node: Node) -> list[int]:
    """Find the processes between containerd and its containers, which outlive containerd."""
    socket = str(paths.node(node.name).containerd_socket)
    processes = marked(paths.state, f"containerd-{node.name}")
    return [
        process.pid
        for process in processes
        if (line := arguments(process.pid))
        and line[0].endswith("containerd-shim-runc-v2")
        and socket in line
    ]


def _link_plugins(paths: Paths, directory: Path) -> None:
    for name, target in binaries.ensure(CNI_PLUGINS, paths).items():
        place = directory / name
        if not (place.is_symlink() and place.readlink() == target):
            place.unlink(missing_ok=True)
            place.symlink_to(target)


def _containerd_config(paths: Paths, node: Node | Worker) -> str:
    own = paths.node(node.name)
    runtime = "plugins.'io.containerd.cri.v1.runtime'"
    return f"""\
version = 3
root = "{own.containerd}"
state = "{own.root}/containerd-state"
disabled_plugins = ["io.containerd.nri.v1.nri", "io.containerd.tracing.processor.v1.otlp"]

[grpc]
address = "{own.containerd_socket}"

[plugins.'io.containerd.internal.v1.opt']
path = "{own.root}/opt"

[plugins.'io.containerd.cri.v1.images']
snapshotter = "overlayfs"

[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = "{images.PAUSE}"

[{runtime}]
# Root may lack CAP_SYS_RESOURCE in a virtual machine: a negative score then makes runc fail.
restrict_oom_score_adj = true
# Not in /run/netns: the first `ip netns add` of anybody would make them impossible to remove.
netns_mounts_under_state_dir = true

[{runtime}.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[{runtime}.containerd.runtimes.runc.options]
SystemdCgroup = false

# The same for Pods of another network plugin than the default one (a RuntimeClass names it).
[{runtime}.containerd.runtimes.{OTHER_RUNTIME}]
runtime_type = "io.containerd.runc.v2"
cni_conf_dir = "{other_cni_conf(own.cni_conf)}"

[{runtime}.containerd.runtimes.{OTHER_RUNTIME}.options]
SystemdCgroup = false

[{runtime}.cni]
bin_dirs = ["{own.cni_bin}"]
conf_dir = "{own.cni_conf}"
"""


def _kubelet_config(paths: Paths, node: Node | Worker) -> dict[str, object]:
    own, pki = paths.node(node.name), paths.pki
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{pki}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{pki}/kubelet-{node.name}.crt",
        "tlsPrivateKeyFile": f"{pki}/kubelet-{node.name}.key",
        "address": node.internal_v4,
        "healthzBindAddress": node.internal_v4,
        "containerRuntimeEndpoint": f"unix://{own.containerd_socket}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": node.cgroup,
        "failCgroupV1": False,
        # In a shared directory each kubelet removes the logs of pods that it does not know.
        "podLogsDir": str(own.pod_logs),
        "staticPodPath": str(own.static_pods),
        "failSwapOn": False,
        "maxOpenFiles": 20000,
        "maxPods": 250,
        "clusterDomain": "cluster.local",
        "clusterDNS": [topology.CLUSTER_DNS, topology.CLUSTER_DNS_V6],
        "resolvConf": str(paths.etc / "resolv.conf"),
        "serializeImagePulls": False,
        # Never collect images: they cannot be pulled again.
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "1%",
            "imagefs.available": "1%",
            "nodefs.inodesFree": "1%",
        },
        "shutdownGracePeriod": "0s",
    }
