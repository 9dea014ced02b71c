"""The product itself on the lab, installed as a user would: `python -m lab.kuryr up|down`.

A wheel in a virtual environment of its own, the CRDs and permissions of etc/, the sample
configuration with a second file for what is particular to this cloud and node, one controller
on node1 (--controllers 2: another one that stands by, as on a host of its own) and a daemon on
every node, each with a token of its ServiceAccount (a daemon's is bound to its Node) and under the
restrictions of its systemd unit. With --debug both log all they have to say; with --pool neutron
Pods' ports are made ahead; with --in-pods both run as Pods, from the image of the Containerfile
(lab.kuryr.in_pods).
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path

from lab import facts, topology
from lab.host import wiring
from lab.install import binaries
from lab.kubernetes import dns
from lab.kubernetes.client import kubectl as kubectl
from lab.kuryr import credential, node_token, pools, router, services, wheel
from lab.kuryr.hardening import Hardening
from lab.kuryr.in_pods import InPods
from lab.lifecycle import probes
from lab.lifecycle.supervisor import Component, Supervisor
from lab.machine import machine
from lab.paths import REPOSITORY, SOURCE, Paths, locked, write_atomic
from lab.process import CommandError, run, wait_until
from lab.progress import Progress

CLUSTER_TAG = "kuryr-lab"
CONTROLLER = "kuryr-controller"
_FURTHER_CRDS = SOURCE / "kubernetes" / "crds"  # kinds of others that the product reads
HEALTH, DAEMON_HEALTH = 8082, 8090
_NPWG = "npwg_multiple_interfaces,named_network"
SECURE = "secure"  # the RuntimeClass of Pods that a virtual machine of their own takes over
_WITH_NEUTRON_PORTS = "vif,kuryrport,kuryrportpool,node,neutron_port,neutron_port_pool"
# the physical network of what a test's device plugin and DRA driver give
_VFS = "lab.local/vf:physnet1,lab-vf:physnet1"
# Also what the libraries say of requests and answers; but not every message of netlink.
_EVERYTHING = (
    "debug = true",
    "default_log_levels = keystoneauth=DEBUG,urllib3=DEBUG,pyroute2=INFO",
)
IN_PODS = "--in-pods"
CONTROLLER_PROGRAM, DAEMON_PROGRAM = "kuryr-k8s-controller", "kuryr-k8s-daemon"


def controller(number: int) -> str:
    """Return the name of a controller as a component of the lab; the first one's has no number."""
    return f"{CONTROLLER}-{number}" if number > 1 else CONTROLLER


def daemon(node: str) -> str:
    """Return the name of a node's daemon as a component of the lab."""
    return f"kuryr-daemon-{node}"


def options(paths: Paths) -> list[str]:
    """Return the options of the last `up`, but for `--debug`; none before the first."""
    try:
        found: list[str] = json.loads(_options_file(paths).read_text())
    except FileNotFoundError:
        return []
    return found


def _options_file(paths: Paths) -> Path:
    return paths.state / "kuryr" / "options.json"


class Installation:
    """The product on one lab that is up."""

    def __init__(
        self,
        paths: Paths | None = None,
        progress: Progress | None = None,
        *,
        debug: bool = False,
        pool: str = "noop",
        pool_options: Mapping[str, str] | None = None,
        with_services: bool = False,
        provider: str = "ovn",
        multus: str = "none",
        pod_selection: str = "all",
        neutron_ports: str = "off",
        with_router: bool = False,
        tree: Path = REPOSITORY,
    ) -> None:
        """Describe the installation.

        :param with_router: with an L7 router for Ingresses, beside Services.
        :param multus: the option of that name: who calls kuryr-cni.
        :param pod_selection: the option of that name: for which Pods.
        :param neutron_ports: the option of that name; if it is not off, there are no Services.
        :param tree: where the sources are; those of another version get a virtual environment
            besides that of this one.
        """
        self.debug = debug
        self._tree = tree
        self._with_services, self._provider = with_services, provider
        self._multus, self._pod_selection = multus, pod_selection
        self._neutron_ports = neutron_ports
        self.with_router = with_router
        self.pool, self._pool_options = pool, pool_options or {}
        self.paths = paths or Paths.from_environment()
        self.lab = facts.load(self.paths.facts)
        self.progress = progress or Progress()
        self.supervisor = Supervisor(self.paths)
        self.root = self.paths.state / "kuryr"
        self._programs = self.root if tree == REPOSITORY else self.root / tree.name
        self.hardening = Hardening(self.root)
        self.in_pods = InPods(self.paths, self.root, self.progress)
        self.pools = self._pools()

    @property
    def _shipped(self) -> Path:
        """The files of etc/: earlier versions have them in no wheel."""
        shipped = wheel.shipped(self._programs)
        return shipped if shipped.exists() else self._tree / "etc"

    def up(self, controllers: int = 1, *, as_pods: bool = False) -> None:
        """Install and start the product, and return when every Node is Ready.

        :param as_pods: let Pods do what the processes do, once these have started.
        """
        options = ["--pool", self.pool, "--controllers", str(controllers)]
        options += [IN_PODS] if as_pods else []
        options += ["--services", "--provider", self._provider] if self._with_services else []
        options += ["--router"] if self.with_router else []
        write_atomic(_options_file(self.paths), json.dumps(options))
        self.before_tests.unlink(missing_ok=True)  # of a killed run: not to be restored any more
        with locked(self.root / "lock"):
            with self.progress.during("install the product"):
                changed = self.install()
                self._link_client()
                self.apply()
                self.in_pods.leave()
                self.pools = self._pools()
                self.hardening.install()
            numbers = range(1, controllers + 1)
            daemons = map(daemon, (*self.lab.nodes, *self.lab.workers))
            self._forget_others({*map(controller, numbers), *daemons})
            names = [
                *map(self.register_controller, numbers),
                *map(self.register_daemon, self.lab.nodes),
                *map(self._register_in_machine, self._workers),
            ]
            if changed:
                for name in names:
                    self.supervisor.stop(name)
                for worker in self._workers:  # what runs there meanwhile may hang for ever
                    machine.refresh(self.paths, worker)
            for name in names:
                with self.progress.during(f"start {name}"):
                    self.supervisor.start(name)
                self.progress.note(f"{name} is ready")
        with self.progress.during("wait until all nodes are Ready"):
            ready = ("--for=condition=Ready", "--timeout=240s")
            kubectl(self.lab, "wait", *ready, "node", "--all")
        self.progress.note("all nodes are Ready")
        with self.progress.during("wait until all nodes reach their Pods"):
            self.await_ways_to_pods()
        if as_pods:
            self.in_pods.enter()
            self.pools = self._pools()
        if self._with_services:
            with self.progress.during("make load balancers for kubernetes and kube-dns"):
                services.up(self.lab, self._provider)
            self.progress.note(f"Services have load balancers ({self._provider}); DNS is one")
            if self.with_router:
                with self.progress.during("make the L7 router"):
                    address = router.up(self.lab)
                self.progress.note(f"the L7 router is at {address}")
        else:
            dns.down(self.lab, wait=False)

    def install(self) -> bool:
        """Install the programs, and start none; return whether they have changed."""
        return wheel.install(self._programs, self.progress, self._tree)

    @property
    def admin_socket(self) -> Path:
        """The socket by which the controller takes changes."""
        own = self._admin_socket(self.root)
        return self.in_pods.admin_socket if self.in_pods.entered else own

    def _pools(self) -> pools.Pools:
        return pools.Pools(f"http://127.0.0.1:{HEALTH}", self.admin_socket)

    @property
    def before_tests(self) -> Path:
        """The file in which tests keep the configuration from before them."""
        return self.root / "configuration-before-tests.json"

    def _link_client(self) -> None:
        """Make kuryr-k8s a program of the lab that reads the configuration of the controller."""
        client = self._programs / "venv" / "bin" / "kuryr-k8s"
        files = (self.root / "kuryr.conf", self._conf(CONTROLLER))
        options = " ".join(shlex.quote(f"--config-file={file}") for file in files)
        script = self.root / "kuryr-k8s"
        program = shlex.quote(str(client))
        text = (
            '#!/bin/sh\ncase " $* " in\n'
            f'*" --config-file"* | *" --url"* | *" --socket"*) exec {program} "$@" ;;\nesac\n'
            f'exec {program} "$@" {options}\n'
        )
        write_atomic(script, text, mode=0o755)
        binaries.link(self.paths, {"kuryr-k8s": script})

    def _forget_others(self, wanted: set[str]) -> None:
        """Remove controllers beyond those wanted, and daemons of nodes that are gone."""
        for name in self.supervisor.records():
            if name.startswith("kuryr-") and name not in wanted:
                self.supervisor.forget(name)

    def down(self) -> None:
        """Stop the controller and the daemons.

        The CNI configuration goes, and so does what the daemons keep for their nodes.
        """
        with locked(self.root / "lock"):
            self.in_pods.leave()
            self._forget_others(set())
        directories = [node.cni_conf_dir for node in self.lab.nodes.values()]
        directories += [worker.cni_conf_dir for worker in self.lab.workers.values()]
        for directory in directories:
            (Path(directory) / "10-kuryr.conflist").unlink(missing_ok=True)
        for node in self.lab.nodes.values():
            vsctl = (f"{self.lab.bin}/ovs-vsctl", f"--db=unix:{node.ovs_socket}", "--timeout=10")
            run([*vsctl, "--if-exists", "del-port", "br-int", "kuryr0"], check=False)
            wiring.delete_leftovers_of_the_daemon(node.netns)
        self.progress.note("kuryr is stopped; the lab runs on (make lab-down stops it)")

    @property
    def _workers(self) -> tuple[topology.Worker, ...]:
        return topology.workers(len(self.lab.workers))

    def apply(self) -> None:
        """Apply the CRDs and the permissions."""
        shared_token = self.root / "kuryr-daemon.token"
        if shared_token.exists():  # of an earlier version: the policy refuses what it writes
            for name in (*self.lab.nodes, *self.lab.workers):
                self.supervisor.stop(daemon(name))
        directories = (self._shipped / "crds", self._shipped / "rbac", _FURTHER_CRDS)
        files = [f"--filename={directory}" for directory in directories]
        if self.with_router:
            files.append(f"--filename={self._shipped}/manifests/{router.CLASS_FILE}")
            further = (self._shipped / each for each in (router.SECRETS_FILE, router.ROUTES_FILE))
            # an earlier version has no TLS, and no Routes
            files += [f"--filename={each}" for each in further if each.exists()]
        kubectl(self.lab, "apply", *files)
        shared_token.unlink(missing_ok=True)
        crds = [f"crd/{plural}.openstack.org" for plural in ("kuryrports", "kuryrportpools")]
        crds.append("crd/network-attachment-definitions.k8s.cni.cncf.io")
        kubectl(self.lab, "wait", "--for=condition=Established", *crds, "--timeout=30s")

    def register_controller(self, number: int) -> str:
        """Make a controller known to the lab.

        All but the first are as on other hosts, with a lock of their own.

        :returns: the name of the component.
        """
        name, port = controller(number), HEALTH + 100 * (number - 1)
        directories = self.root if number == 1 else self.root / name
        cloud = self.lab.cloud
        network = cloud.networks["pods"]
        subnets = [subnet.id for subnet in (network.v4, network.v6) if subnet is not None]
        settings = {
            "kubernetes": self._kubernetes(self._controllers_token())
            | {"lock_file": f"{directories}/run/kuryr-controller/controller.lock"},
            "neutron": {"cloud": "kuryr"},
            "neutron_defaults": {
                "project": cloud.project_id,
                "pod_subnet": ",".join(subnets),
                "resource_tags": CLUSTER_TAG,
                "sweep_interval": "30",
                **self._way_to_pods(),
            },
            "health_server": {
                "port": str(port),
                "admin_socket": str(self._admin_socket(directories)),
            },
        }
        keeping = pools.settings(self.pool, self._pool_options, machines=bool(self.lab.workers))
        balancing = services.settings(cloud, self._provider) if self._with_services else {}
        for more in (keeping, balancing):
            for group, options in more.items():
                settings[group] = settings.get(group, {}) | options
        if self._with_services and not self._has_node_handler:
            handlers = services.HANDLERS.split(",")
            handlers.remove("node")
            settings["kubernetes"]["enabled_handlers"] = ",".join(handlers)
        if self.with_router:
            settings["kubernetes"]["enabled_handlers"] += f",{router.HANDLERS}"
            settings["l7_router"] = router.SETTINGS
        if (self._tree / "kuryr_k8s" / "drivers" / "multi_vif" / "additional_subnets.py").exists():
            drivers = "additional_subnets,npwg_multiple_interfaces"
            if (self._tree / "kuryr_k8s" / "drivers" / "multi_vif" / "named_network.py").exists():
                drivers += ",named_network"
            if self._has_sriov:
                drivers += ",sriov"
                settings["sriov"] = {"resource_physnets": _VFS}
            settings["kubernetes"]["multi_vif_drivers"] = drivers
            settings["kubernetes"]["vm_runtime_classes"] = SECURE
        if self._multus != "none":
            settings["kubernetes"] |= {"multus": self._multus, "multi_vif_drivers": _NPWG}
        if self._pod_selection != "all":
            settings["kubernetes"]["pod_selection"] = self._pod_selection
        if self._neutron_ports != "off":
            settings["kubernetes"] |= {
                "neutron_ports": self._neutron_ports,
                "enabled_handlers": _WITH_NEUTRON_PORTS,
            }
        if self.lab.workers:
            workers = cloud.networks["workers"].v4
            assert workers is not None
            settings["pod_vif_nested"] = {"worker_nodes_subnets": workers.id}
            # macvlans have the groups of their node, which users get by a grant alone
            settings["policy"] = {"port_security": f"*:{cloud.networks['workers'].id}"}
        component = Component(
            name,
            self._command(CONTROLLER_PROGRAM, name, settings, directories),
            ready=(probes.http(f"http://127.0.0.1:{port}/readyz"),),
            needs=("kube-apiserver", "neutron", "keystone"),
            env={"OS_CLIENT_CONFIG_FILE": self._clouds()},
            timeout=120,
            grace=60,
            files=self._files(CONTROLLER_PROGRAM, name),
        )
        self.supervisor.register(component)
        return component.name

    @property
    def _has_sriov(self) -> bool:
        return (self._tree / "kuryr_k8s" / "drivers" / "multi_vif" / "sriov.py").exists()

    @property
    def _has_node_handler(self) -> bool:
        return (self._tree / "kuryr_k8s" / "handlers" / "nodes").exists()

    def _way_to_pods(self) -> dict[str, str]:
        """Build the settings by which nodes reach Pods, and are let in.

        An earlier version has none: the nodes keep the ports that they have, and the Pods' own
        groups let them in.
        """
        cloud = self.lab.cloud
        if not self._has_node_handler:
            groups = (cloud.security_groups[name] for name in ("pods", "nodes"))
            return {"pod_security_groups": ",".join(groups)}
        own = cloud.networks["nodes"]
        further = (topology.network(name) for name in ("vms", topology.WORKER_NETWORK.name))
        return {
            "pod_security_groups": cloud.security_groups["pods"],
            "node_subnet": ",".join(each.id for each in (own.v4, own.v6) if each is not None),
            "node_security_groups": cloud.security_groups["nodes"],
            "node_routes": ",".join(f"{each.v4},{each.v6}" for each in further),
        }

    def await_ways_to_pods(self) -> None:
        """Return when every node has its own interface in the network of its Pods.

        :raises CommandError: one does not in time.
        """
        url = f"http://127.0.0.1:{DAEMON_HEALTH}/metrics"
        for node in self.lab.nodes.values():
            is_up = probes.command(
                "curl", "-fsS", url, netns=node.netns, pattern=r"kuryr_node_interface_up 1\.0"
            )
            if not wait_until(is_up.answer, 120, 0.2):
                raise CommandError(f"{node.name} has no interface kuryr0 after 120 s")

    def register_daemon(self, name: str) -> str:
        """Make the daemon of a node known to the lab.

        :returns: the name of the component.
        """
        node = self.lab.nodes[name]
        own = self.root / name
        token = self._token_of_node(name)
        settings = {
            "kubernetes": self._kubernetes(token) | {"node_name": name},
            "cni_daemon": {
                "socket": f"{own}/cni.sock",
                "spool_dir": f"{own}/spool",
                "ovsdb_connection": f"unix:{node.ovs_socket}",
                "cni_bin_dir": node.cni_bin_dir,
                "cni_conf_dir": node.cni_conf_dir,
                "node_ports": "true",
            },
            "cni_health_server": {"port": str(DAEMON_HEALTH)},
        }
        url = f"http://127.0.0.1:{DAEMON_HEALTH}/readyz"
        component = Component(
            daemon(name),
            self._command(DAEMON_PROGRAM, daemon(name), settings, own),
            ready=(probes.command("curl", "-fsS", url, netns=node.netns),),
            needs=("kube-apiserver", f"ovs-vswitchd-{name}"),
            netns=node.netns,
            timeout=120,
            grace=15,
            files=(*self._files(DAEMON_PROGRAM, daemon(name)), str(token)),
        )
        self.supervisor.register(component)
        return component.name

    def _register_in_machine(self, worker: topology.Worker) -> str:
        """Make the daemon of a node that is a virtual machine known to the lab; it runs there."""
        name, node = daemon(worker.name), self.lab.workers[worker.name]
        own = Path("/run/lab")  # of the machine
        token = self._token_of_node(worker.name)
        settings = {
            "kubernetes": self._kubernetes(token) | {"node_name": worker.name},
            "cni_daemon": {
                "socket": f"{own}/run/kuryr/cni.sock",
                "spool_dir": f"{self.paths.node(worker.name).root}/spool",
                "ovsdb_connection": "",
                "cni_bin_dir": node.cni_bin_dir,
                "cni_conf_dir": node.cni_conf_dir,
                "node_ports": "true",
            },
            "binding": {"state_dir": f"{own}/run/kuryr/vlan"},
            "cni_health_server": {"port": str(DAEMON_HEALTH)},
        }
        if self._has_sriov:
            settings["sriov"] = {
                "resource_physnets": _VFS,
                "pod_resources_socket": f"{node.kubelet_root}/pod-resources/kubelet.sock",
                "advertise": f"physnet1:{machine.CARD}",
            }
        component = Component(
            name,
            self._command(DAEMON_PROGRAM, name, settings, own),
            ready=(probes.command("curl", "-fsS", f"http://127.0.0.1:{DAEMON_HEALTH}/readyz"),),
            needs=("kube-apiserver",),
            timeout=120,
            grace=15,
            files=(*self._files(DAEMON_PROGRAM, name), str(token)),
        )
        self.supervisor.register(machine.inside(self.paths, worker, component))
        return name

    def _command(
        self, program: str, name: str, settings: Mapping[str, Mapping[str, str]], directories: Path
    ) -> tuple[str, ...]:
        """Build the command line of a program as its unit restricts it.

        It reads the sample configuration, and a second file with what differs here.
        """
        conf = self._conf(name)
        lines = ["[DEFAULT]", *(_EVERYTHING if self.debug else ())]
        for group, options in settings.items():
            lines += [f"[{group}]", *(f"{option} = {value}" for option, value in options.items())]
        self._write_secret(conf, "\n".join(lines) + "\n", program)
        sample = self._shipped / "kuryr.conf.sample"
        shutil.copyfile(sample, self.root / "kuryr.conf")
        return (
            *self.hardening.command(program, directories),
            str(self._programs / "venv" / "bin" / program),
            f"--config-file={self.root}/kuryr.conf",
            f"--config-file={conf}",
        )

    @staticmethod
    def _admin_socket(directories: Path) -> Path:
        return directories / "run" / "kuryr-controller" / "admin.sock"

    def _files(self, program: str, name: str) -> tuple[str, ...]:
        return (str(self._conf(name)), *self.hardening.files(program))

    def _conf(self, name: str) -> Path:
        return self.root / f"{name}.conf"

    def _clouds(self) -> str:
        """Write a clouds.yaml with the controller's own credential, and nobody else's."""
        path = self.root / "controller-clouds.yaml"
        if not path.exists():
            own = credential.clouds(Path(self.lab.cloud.clouds_yaml))
            self._write_secret(path, json.dumps(own, indent=1), CONTROLLER_PROGRAM)
        return str(path)

    def _kubernetes(self, token: Path) -> dict[str, str]:
        return {
            "api_root": self.lab.kubernetes.url,
            "ssl_ca_crt_file": self.lab.kubernetes.ca,
            "token_file": str(token),
        }

    def _controllers_token(self) -> Path:
        path = self.root / "kuryr-controller.token"
        if not path.exists():
            create = ("create", "token", "kuryr-controller", "--duration=87600h")
            secret = kubectl(self.lab, "-n", "kube-system", *create)
            self._write_secret(path, secret, CONTROLLER_PROGRAM)
        self.hardening.give(path, CONTROLLER_PROGRAM)
        return path

    def token_of_node(self, name: str) -> Path:
        """Return the path of the token of a node's daemon.

        It is in the node's directory, which a machine looks at anew each time.
        """
        return self.paths.node(name).root / "kuryr-daemon.token"

    def _token_of_node(self, name: str) -> Path:
        """Ensure that the node's daemon has a token, and that the API server takes it."""
        path = self.token_of_node(name)
        secret = node_token.missing(self.lab, name, path)
        if secret is not None:
            self._write_secret(path, secret, DAEMON_PROGRAM)
        self.hardening.give(path, DAEMON_PROGRAM)
        return path

    def _write_secret(self, path: Path, text: str, program: str) -> None:
        """Write a file that only the program's account reads."""
        write_atomic(path, text, mode=0o600)
        self.hardening.give(path, program)


def main() -> int:
    """Put the product on the lab, or remove it, as the command line asks for.

    :returns: the exit code.
    """
    parser = argparse.ArgumentParser(prog="python3 -m lab.kuryr")
    parser.add_argument("command", choices=("up", "down"), nargs="?", default="up")
    parser.add_argument("--debug", action="store_true", help="let both programs log all")
    parser.add_argument("--controllers", type=int, default=1, help="how many: one leads")
    parser.add_argument("--pool", default="noop", choices=pools.KINDS, help="make ports ahead?")
    parser.add_argument("--services", action="store_true", help="load balancers for Services?")
    parser.add_argument("--provider", default="ovn", choices=services.PROVIDERS, help="of those")
    parser.add_argument("--router", action="store_true", help="an L7 router, beside Services?")
    parser.add_argument(IN_PODS, action="store_true", help="run them as Pods, from an image")
    arguments = parser.parse_args()
    installation = Installation(
        debug=arguments.debug,
        pool=arguments.pool,
        with_services=arguments.services,
        provider=arguments.provider,
        with_router=arguments.router,
    )
    if arguments.command == "up":
        installation.up(arguments.controllers, as_pods=arguments.in_pods)
    else:
        installation.down()
    return 0
