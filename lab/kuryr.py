"""The product itself on the lab, installed as a user would: `python -m lab.kuryr up|down`.

A wheel in a virtual environment of its own, the CRDs and permissions of etc/, the sample
configuration with a second file for what is particular to this cloud and node, one controller
on node1 and a daemon on every node, each with the token of its ServiceAccount.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from lab import facts, probes
from lab.paths import Paths, locked, write_atomic
from lab.process import run
from lab.progress import Progress
from lab.supervisor import Component, Supervisor

REPOSITORY = Path(__file__).resolve().parent.parent
CLUSTER_TAG = "kuryr-lab"
CONTROLLER = "kuryr-controller"
HEALTH, DAEMON_HEALTH = 8082, 8090
# What the wheel is made of; a change of it is a new installation.
SOURCES = ("kuryr_k8s", "setup.cfg", "setup.py", "pyproject.toml", "requirements.txt")
# What others may have built in between them
BUILT = ("__pycache__", "kuryr-cni")
BUILD_BACKEND = "setuptools>=70.1"  # as in pyproject.toml


def daemon(node: str) -> str:
    """The name of a node's daemon as a component of the lab."""
    return f"kuryr-daemon-{node}"


class Installation:
    """The product on one lab that is up."""

    def __init__(self, paths: Paths | None = None, progress: Progress | None = None) -> None:
        self.paths = paths or Paths.from_environment()
        self.lab = facts.load(self.paths.facts)
        self.progress = progress or Progress()
        self.supervisor = Supervisor(self.paths)
        self.root = self.paths.state / "kuryr"
        self.venv = self.root / "venv"

    def up(self) -> None:
        """Install, start, and return when every Node is Ready."""
        with locked(self.root / "lock"):
            changed = self._install()
            self._apply()
            self._forget_others()
            names = [self._register_controller(), *map(self._register_daemon, self.lab.nodes)]
            for name in names:
                if changed:
                    self.supervisor.stop(name)
                self.supervisor.start(name)
                self.progress.note(f"{name} is ready")
        kubectl(self.lab, "wait", "--for=condition=Ready", "node", "--all", "--timeout=120s")
        self.progress.note("all nodes are Ready")

    def _forget_others(self) -> None:
        """Daemons of nodes that the lab has no more."""
        wanted = {CONTROLLER, *map(daemon, self.lab.nodes)}
        for name in self.supervisor.records():
            if name.startswith("kuryr-") and name not in wanted:
                self.supervisor.forget(name)

    def down(self) -> None:
        """Stop the controller and the daemons, and take the CNI configuration away."""
        with locked(self.root / "lock"):
            for name in (CONTROLLER, *map(daemon, self.lab.nodes)):
                if self.supervisor.find(name) is not None:
                    self.supervisor.forget(name)
        for node in self.lab.nodes.values():
            (Path(node.cni_conf_dir) / "10-kuryr.conflist").unlink(missing_ok=True)
        self.progress.note("kuryr is stopped; the lab runs on (make lab-down stops it)")

    def _install(self) -> bool:
        """Build the wheel and install it, if the sources changed; whether they did."""
        version = _digest()
        marker = self.root / "installed"
        if marker.exists() and marker.read_text() == version:
            return False
        marker.unlink(missing_ok=True)
        python = str(self.venv / "bin/python")
        pip = [python, "-m", "pip", "--disable-pip-version-check", "-q"]
        complete = self.venv / "complete"
        if not complete.exists() or complete.read_text() != BUILD_BACKEND:
            shutil.rmtree(self.venv, ignore_errors=True)
            run([sys.executable, "-m", "venv", str(self.venv)])
            run([*pip, "install", BUILD_BACKEND], timeout=600)
            write_atomic(complete, BUILD_BACKEND)
        with tempfile.TemporaryDirectory(dir=self.root) as directory:
            # built from a copy: the build must not leave its own directories in the sources
            copy = Path(directory) / "source"
            for name in (*SOURCES, "README.md", "LICENSE"):
                _copy(REPOSITORY / name, copy / name)
            build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", directory]
            run([*build, str(copy)], timeout=600)
            (wheel,) = Path(directory).glob("*.whl")
            run([*pip, "install", str(wheel)], timeout=900)  # with its dependencies
            run([*pip, "install", "--force-reinstall", "--no-deps", str(wheel)], timeout=600)
            self.progress.note(f"installed {wheel.name}")
        write_atomic(marker, version)
        return True

    def _apply(self) -> None:
        files = [f"--filename={REPOSITORY / 'etc' / part}" for part in ("crds", "rbac")]
        kubectl(self.lab, "apply", *files)
        crd = "crd/kuryrports.openstack.org"
        kubectl(self.lab, "wait", "--for=condition=Established", crd, "--timeout=30s")

    def _register_controller(self) -> str:
        cloud = self.lab.cloud
        pods = cloud.networks["pods"]
        subnets = [subnet.id for subnet in (pods.v4, pods.v6) if subnet is not None]
        settings = {
            "kubernetes": self._kubernetes("kuryr-controller")
            | {"lock_file": f"{self.root}/controller.lock"},
            "neutron": {"cloud": "kuryr"},
            "neutron_defaults": {
                "project": cloud.project_id,
                "pod_subnet": ",".join(subnets),
                "pod_security_groups": cloud.security_groups["pods"],
                "resource_tags": CLUSTER_TAG,
                "sweep_interval": "30",
            },
            "health_server": {"port": str(HEALTH)},
        }
        component = Component(
            CONTROLLER,
            self._command("kuryr-k8s-controller", CONTROLLER, settings),
            ready=(probes.http(f"http://127.0.0.1:{HEALTH}/readyz"),),
            needs=("kube-apiserver", "neutron", "keystone"),
            env={"OS_CLIENT_CONFIG_FILE": cloud.clouds_yaml},
            timeout=60,
            grace=60,
        )
        self.supervisor.register(component)
        return component.name

    def _register_daemon(self, name: str) -> str:
        node = self.lab.nodes[name]
        own = self.root / name
        settings = {
            "kubernetes": self._kubernetes("kuryr-daemon") | {"node_name": name},
            "cni_daemon": {
                "socket": f"{own}/cni.sock",
                "spool_dir": f"{own}/spool",
                "ovsdb_connection": f"unix:{node.ovs_socket}",
                "cni_bin_dir": node.cni_bin_dir,
                "cni_conf_dir": node.cni_conf_dir,
            },
            "cni_health_server": {"port": str(DAEMON_HEALTH)},
        }
        url = f"http://127.0.0.1:{DAEMON_HEALTH}/readyz"
        component = Component(
            daemon(name),
            self._command("kuryr-k8s-daemon", daemon(name), settings),
            ready=(probes.command("curl", "-fsS", url, netns=node.netns),),
            needs=("kube-apiserver", f"ovs-vswitchd-{name}"),
            netns=node.netns,
            timeout=60,
            grace=15,
        )
        self.supervisor.register(component)
        return component.name

    def _command(
        self, program: str, name: str, settings: Mapping[str, Mapping[str, str]]
    ) -> tuple[str, ...]:
        """The program with the sample configuration, and what differs here in a second file."""
        conf = self.root / f"{name}.conf"
        lines = []
        for group, options in settings.items():
            lines += [f"[{group}]", *(f"{option} = {value}" for option, value in options.items())]
        write_atomic(conf, "\n".join(lines) + "\n", mode=0o600)
        sample = REPOSITORY / "etc" / "kuryr.conf.sample"
        shutil.copyfile(sample, self.root / "kuryr.conf")
        files = (f"--config-file={self.root}/kuryr.conf", f"--config-file={conf}")
        return (str(self.venv / "bin" / program), *files)

    def _kubernetes(self, account: str) -> dict[str, str]:
        token = self.root / f"{account}.token"
        if not token.exists():
            create = ("create", "token", account, "--duration=87600h")
            write_atomic(token, kubectl(self.lab, "-n", "kube-system", *create), mode=0o600)
        return {
            "api_root": self.lab.kubernetes.url,
            "ssl_ca_crt_file": self.lab.kubernetes.ca,
            "token_file": str(token),
        }


def kubectl(
    lab: facts.Lab, *arguments: str, stdin: str | None = None, timeout: float = 180
) -> str:
    """Run kubectl as the cluster's administrator; what it printed."""
    command = [f"{lab.bin}/kubectl", f"--kubeconfig={lab.kubernetes.admin_kubeconfig}"]
    return run([*command, *arguments], stdin=stdin, timeout=timeout)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns(*BUILT))
    elif source.exists():
        shutil.copyfile(source, target)


def _digest() -> str:
    """What the sources are, in one word."""
    digest = hashlib.sha256(sys.version.encode())
    for name in SOURCES:
        root = REPOSITORY / name
        for path in sorted(root.rglob("*")) if root.is_dir() else [root]:
            if path.is_file() and not {*BUILT} & {*path.parts}:
                digest.update(str(path.relative_to(REPOSITORY)).encode() + path.read_bytes())
    return digest.hexdigest()


def main() -> int:
    command = sys.argv[1] if len(sys.argv) > 1 else "up"
    if command not in ("up", "down"):
        print("usage: python -m lab.kuryr up|down", file=sys.stderr)
        return 2
    installation = Installation()
    (installation.up if command == "up" else installation.down)()
    return 0


if __name__ == "__main__":
    sys.exit(main())
