"""The product on the lab as Pods: the image of the Containerfile, and etc/manifests.

What is changed of the manifests is what differs on the lab: the name of the image, the address of
the API server, and that all nodes share one file system. A node's directories are below the lab's
state, and the daemon of each node reads a second file of settings with their paths.
"""

from __future__ import annotations

import configparser
import io
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from lab import facts
from lab.install import images
from lab.kubernetes.client import kubectl
from lab.kuryr import image, wheel
from lab.lifecycle.supervisor import Component, Supervisor
from lab.paths import Paths
from lab.process import CommandError, run
from lab.progress import Progress

Json = dict[str, Any]
CONTROLLER, DAEMON = "kuryr-controller", "kuryr-daemon"
_WORKLOADS = (CONTROLLER, DAEMON)
_NAMESPACE = "--namespace=kube-system"
_MASTER = "node-role.kubernetes.io/control-plane"
_USER = 65532  # of the controller, in etc/manifests
_NODE = "$(KUBERNETES_NODE_NAME)"
# Options whose values a Pod has from Kubernetes or from the manifest.
_OF_PODS = {
    "kubernetes": ("api_root", "ssl_ca_crt_file", "token_file", "lock_file", "node_name"),
    "health_server": ("admin_socket",),
    "cni_daemon": ("cni_bin_dir", "cni_conf_dir"),
}


class InPods:
    """The product as Pods on a lab on which it is installed as processes."""

    def __init__(self, paths: Paths, root: Path, progress: Progress) -> None:
        self._paths, self._root, self._progress = paths, root, progress
        self._lab = facts.load(paths.facts)
        self._supervisor = Supervisor(paths)
        # which the controller has as its /run/kuryr-controller
        self._directory = root / "in-pods"

    @property
    def admin_socket(self) -> Path:
        """The controller's socket for changes, on the machine."""
        return self._directory / "admin.sock"

    @property
    def entered(self) -> bool:
        """True while Pods replace the processes, and after an `enter` that was interrupted."""
        return self._directory.exists()

    def enter(self) -> list[Component]:
        """Let Pods do what the processes do, and return when they are ready.

        :returns: the processes' components, for `leave`.
        :raises CommandError: a node is a virtual machine, or the Pods are not ready in time.
        """
        if self._lab.workers:
            raise CommandError("in Pods the lab has no node that is a virtual machine (--vm 0)")
        name, archive = image.ensure(self._paths, self._progress)
        for node in self._lab.nodes.values():
            images.load_archive(self._paths, Path(node.containerd_socket), name, archive)
            images.remove_others(self._paths, Path(node.containerd_socket), name)
        run(["mount", "--make-rshared", "/"])  # as systemd makes it
        self._directory.mkdir(parents=True, exist_ok=True)
        os.chown(self._directory, _USER, _USER)
        replaced = [
            record.component
            for each, record in self._supervisor.records().items()
            if each.startswith("kuryr-")
        ]
        try:
            self._replace(replaced, name)
        except CommandError:
            self.leave(replaced)
            raise
        return replaced

    def _replace(self, processes: list[Component], name: str) -> None:
        for component in processes:
            self._supervisor.forget(component.name)
        kubectl(self._lab, "label", "node", "node1", f"{_MASTER}=", "--overwrite")
        self._apply(self._configuration(), self._credential(), *self._workloads(name))
        with self._progress.during("start the controller and the daemons as Pods"):
            self.await_rollout()
        self._progress.note("the controller and the daemons are Pods")

    def leave(self, components: Iterable[Component] = ()) -> None:
        """Remove the Pods and all that `enter` made in the cluster; start these processes."""
        if not self.entered:
            return
        delete = ("delete", "--ignore-not-found", "--timeout=120s")
        names = (f"daemonset/{CONTROLLER}", f"daemonset/{DAEMON}")
        more = ("configmap/kuryr-config", "secret/kuryr-clouds")
        kubectl(self._lab, _NAMESPACE, *delete, "--cascade=foreground", *names, *more)
        kubectl(self._lab, "label", "node", "--all", f"{_MASTER}-")
        shutil.rmtree(self._directory)
        for component in components:
            self._supervisor.register(component)
            self._supervisor.start(component.name)

    def await_rollout(self) -> None:
        """Return when the Pods of both workloads are those of their present templates, and ready.

        :raises CommandError: they are not in time.
        """
        for name in _WORKLOADS:
            wait = ("rollout", "status", f"daemonset/{name}", "--timeout=240s")
            kubectl(self._lab, _NAMESPACE, *wait, timeout=260)

    def _apply(self, *objects: Json) -> None:
        items = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        kubectl(self._lab, "apply", "--filename=-", stdin=json.dumps(items))

    def _configuration(self) -> Json:
        files = {"kuryr.conf": self._settings(CONTROLLER)}
        for node in self._lab.nodes:
            files[f"{node}.conf"] = self._settings(f"{DAEMON}-{node}")
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "kuryr-config", "namespace": "kube-system"},
            "data": files,
        }

    def _settings(self, name: str) -> str:
        """Return the settings of a process, without those that a Pod needs not."""
        found = configparser.ConfigParser(interpolation=None)
        found.read(self._root / f"{name}.conf")
        for group, options in _OF_PODS.items():
            for option in options:
                if found.has_section(group):
                    found.remove_option(group, option)
        text = io.StringIO()
        found.write(text)
        return text.getvalue()

    def _credential(self) -> Json:
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "kuryr-clouds", "namespace": "kube-system"},
            "stringData": {
                "clouds.yaml": (self._root / "controller-clouds.yaml").read_text(),
            },
        }

    def _workloads(self, name: str) -> list[Json]:
        """Return the workloads of etc/manifests as the lab needs them."""
        manifest = wheel.shipped(self._root) / "manifests" / "kuryr.yaml"
        as_json = ("create", "--dry-run=client", "--output=json", f"--filename={manifest}")
        found = {each["metadata"]["name"]: each for each in _all(kubectl(self._lab, *as_json))}
        url = urlsplit(self._lab.kubernetes.url)
        address = [
            {"name": "KUBERNETES_SERVICE_HOST", "value": url.hostname},
            {"name": "KUBERNETES_SERVICE_PORT", "value": str(url.port)},
        ]
        for each in found.values():
            container = _container(each)
            container["image"], container["imagePullPolicy"] = name, "Never"
            container["env"] = [*container.get("env", ()), *address]
        directory = str(self._directory)
        _volumes(found[CONTROLLER])["run"] |= {"emptyDir": None, "hostPath": {"path": directory}}
        self._adapt_daemon(found[DAEMON])
        return list(found.values())

    def _adapt_daemon(self, workload: Json) -> None:
        """Lead the daemon of each node to the directories of its node."""
        container, volumes = _container(workload), _volumes(workload)
        container["command"] += ["--config-file", f"/etc/kuryr/{_NODE}.conf"]
        nodes, own = str(self._paths.state / "nodes"), str(self._root)
        for volume, path, below in (
            ("cni-bin", nodes, f"{_NODE}/cni/bin"),
            ("cni-conf", nodes, f"{_NODE}/cni/net.d"),
            ("spool", own, _NODE),
        ):
            volumes[volume]["hostPath"] = {"path": path}
            mount = next(each for each in container["volumeMounts"] if each["name"] == volume)
            mount["subPathExpr"] = below
        # Network namespaces and the sockets of Open vSwitch, which are in /run on other nodes.
        state = str(self._paths.state)
        container["volumeMounts"].append(
            {"name": "lab", "mountPath": state, "mountPropagation": "HostToContainer"}
        )
        spec = workload["spec"]["template"]["spec"]
        spec["volumes"].append({"name": "lab", "hostPath": {"path": state}})


def _all(text: str) -> Iterator[Json]:
    """Read JSON documents that follow each other."""
    decoder = json.JSONDecoder()
    while text := text.lstrip():
        document, end = decoder.raw_decode(text)
        yield document
        text = text[end:]


def _container(workload: Json) -> Json:
    found: Json = workload["spec"]["template"]["spec"]["containers"][0]
    return found


def _volumes(workload: Json) -> dict[str, Json]:
    return {each["name"]: each for each in workload["spec"]["template"]["spec"]["volumes"]}
