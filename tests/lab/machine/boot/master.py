"""The files of the master: what is on its disk before it boots for the first time."""

import configparser
import json
import shutil
from pathlib import Path

from lab import topology
from lab.install import binaries, images, openvswitch
from lab.kubernetes.certificates import Store
from lab.machine import kernel
from lab.paths import REPOSITORY
from lab.process import run
from tests.kit.cni_program import kuryr_cni

NAME, ADDRESS = "master", "10.0.2.15"  # QEMU's own network
CLOUD = "10.0.2.2"  # this machine, as seen from there
TARGET = "cluster.target"
CODE = "/usr/lib/kuryr"
PKI = "/etc/kubernetes/pki"
CNI_CONF = "/etc/cni/net.d"
KURYR = ("kuryr-k8s-controller", "kuryr-k8s-daemon")
PLUGIN = "/opt/cni/bin/kuryr-cni"
BUSYBOX = images.BUSYBOX
KUBECTL = f"/usr/local/bin/kubectl --kubeconfig={PKI}/admin.kubeconfig"
PLUGINS = ("loopback", "portmap")
MODULES = {"kuryr-k8s-controller": "kuryr_k8s.app", "kuryr-k8s-daemon": "kuryr_k8s.cni.app"}
PROGRAMS = ("containerd", "containerd-shim-runc-v2", "ctr", "etcd", "kube-apiserver", "kubectl")

NETWORK_UNIT = f"""\
[Unit]
Before=network-online.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -ec 'ip link set eth0 up; ip addr add {ADDRESS}/24 dev eth0; \\
  ip route add default via {CLOUD}; ip addr add {topology.API_ADDRESS}/32 dev lo; \\
  mkdir -p /run/lock; ln -sf {{busybox}} /run/modprobe; \\
  echo /run/modprobe > /proc/sys/kernel/modprobe; echo 1 > /proc/sys/net/ipv4/ip_forward'
"""
AGENT_UNIT = """\
[Service]
ExecStart=/usr/bin/python3 -ISE /etc/agent/agent.py /etc/agent/token
Restart=always
"""
CONTAINERD_UNIT = """\
[Unit]
After=network-online.target
Wants=network-online.target
[Service]
Type=notify
Environment=PATH={path}
ExecStart={containerd} --config /etc/containerd/config.toml
ExecStartPost=/bin/sh -ec '[ -e /disk/images ] || for each in {archives}; do \
  {ctr} -n k8s.io images import --local $each; done; touch /disk/images'
Restart=always
Delegate=yes
KillMode=process
"""
# As kubeadm has it.
KUBELET_UNIT = """\
[Unit]
Wants=network-online.target
After=network-online.target containerd.service
StartLimitIntervalSec=0
[Service]
Environment=PATH={path}
ExecStart={kubelet} --config=/etc/kubernetes/kubelet.json \
 --kubeconfig={pki}/kubelet-{name}.kubeconfig --hostname-override={name} --node-ip={address}
Restart=always
RestartSec=10
"""
# Debian's names.
OVS_UNIT = """\
[Unit]
Before=network.target
[Service]
Type=oneshot
RemainAfterExit=yes
Environment=PATH={path}
ExecStart=/bin/sh -ec '{busybox} modprobe tun; mkdir -p /run/openvswitch /var/lib/openvswitch; \\
  cd /var/lib/openvswitch; [ -e conf.db ] || ovsdb-tool create conf.db {schema}; \\
  ovsdb-server conf.db --remote=punix:/run/openvswitch/db.sock --detach \\
    --pidfile=/run/openvswitch/ovsdb.pid --unixctl=/run/openvswitch/ovsdb.ctl; \\
  export OVS_RUNDIR=/run/openvswitch; vsctl="ovs-vsctl --db=unix:/run/openvswitch/db.sock"; \\
  $vsctl --no-wait init -- set Open_vSwitch . external_ids:hostname={name} \\
    -- --may-exist add-br br-int -- set bridge br-int datapath_type=netdev; \\
  ovs-vswitchd unix:/run/openvswitch/db.sock --detach --pidfile=/run/openvswitch/vswitchd.pid \\
    --unixctl=/run/openvswitch/vswitchd.ctl'
"""
OVN_UNIT = """\
[Unit]
After=openvswitch-switch.service
[Service]
Environment=PATH={path}
ExecStart=/bin/sh -c 'while sleep 1; do \\
  for each in $(ovs-vsctl --db=unix:/run/openvswitch/db.sock --bare --columns=name \\
      find Interface external_ids:iface-status=active); do \\
    ovs-vsctl --db=unix:/run/openvswitch/db.sock set Interface $each \\
      external_ids:ovn-installed=true; done; done'
Restart=always
"""


class Disk:
    """The tree of files from which the disk is made.

    :param paths: the lab's directories, whose programs the machine runs.
    """

    def __init__(self, paths, directory, cloud):
        self._paths = paths
        self._root = directory / "upper"
        self._cloud = cloud
        names = (*PROGRAMS, *PLUGINS, "kubelet")
        found = binaries.ensure(names, paths)
        # where they are, as the static Pods see the cache only
        self._programs = {name: program.resolve() for name, program in found.items()}
        self._busybox = images.busybox(paths)

    def write(self, name, text, mode=0o644):
        file = self._root / name.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(mode)

    def link(self, name, target):
        file = self._root / name.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.symlink_to(target)

    def fill(self, token, agent):
        """Write everything."""
        self._base(token, agent)
        self._certificates()
        self._kubernetes()
        self._units()
        self._kuryr()

    def _base(self, token, agent):
        modules = kernel.install(self._paths).modules
        self.link(f"/lib/modules/{modules.name}".replace("/lib", "/usr/lib", 1), modules)
        self.write("/etc/hostname", f"{NAME}\n")
        self.write("/etc/machine-id", "0123456789abcdef0123456789abcdef\n")
        self.write("/etc/fstab", "")
        self.write("/etc/resolv.conf", "")
        self.write("/etc/tmpfiles.d/tmp.conf", "")  # what is in the host's /tmp stays there
        self.write("/etc/systemd/journald.conf", "[Journal]\nStorage=persistent\n")
        self.write("/etc/systemd/system.conf.d/start.conf", SLOW)
        self.write("/etc/agent/agent.py", agent)
        self.write("/etc/agent/token", token, 0o600)
        passwd = "kuryr:x:65532:65532::/nonexistent:/usr/sbin/nologin\n"
        for name, line in (("passwd", passwd), ("group", "kuryr:x:65532:\n")):
            self.write(f"/etc/{name}", Path("/etc", name).read_text() + line)

    def _certificates(self):
        directory = self._root / PKI.lstrip("/")
        store = Store(directory)
        store.authority("ca")
        store.signing_key("sa")
        names = ("IP:127.0.0.1", f"IP:{topology.API_ADDRESS}", f"IP:{ADDRESS}", f"DNS:{NAME}")
        store.certificate("apiserver", "/CN=kube-apiserver", "serverAuth", names)
        clients = {
            "admin": "/O=system:masters/CN=admin",
            "controller": "/CN=system:serviceaccount:kube-system:kuryr-controller",
            f"kubelet-{NAME}": f"/O=system:nodes/CN=system:node:{NAME}",
        }
        for name, subject in clients.items():
            store.certificate(name, subject, "clientAuth,serverAuth", names)
            store.kubeconfig(name)
        for name in ("ca.crt", "controller.crt", "controller.key"):
            own = self._root / "etc/kuryr/pki" / name
            own.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(directory / name, own)
            own.chmod(0o644)  # the user kuryr reads it

    def _kubernetes(self):
        for plugin in PLUGINS:
            self.link(f"/opt/cni/bin/{plugin}", self._programs[plugin])
        self.link("/usr/local/bin/kubectl", self._programs["kubectl"])
        self.write("/etc/containerd/config.toml", CONTAINERD)
        self.write("/etc/kubernetes/kubelet.json", json.dumps(KUBELET, indent=1))
        api = [
            str(self._programs["kube-apiserver"]),
            "--etcd-servers=http://127.0.0.1:2379",
            f"--advertise-address={ADDRESS}",
            "--service-cluster-ip-range=10.96.0.0/16",
            f"--tls-cert-file={PKI}/apiserver.crt",
            f"--tls-private-key-file={PKI}/apiserver.key",
            f"--client-ca-file={PKI}/ca.crt",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            # without kube-controller-manager there are no ServiceAccounts
            "--disable-admission-plugins=ServiceAccount",
            "--allow-privileged",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            f"--service-account-key-file={PKI}/sa.pub",
            f"--service-account-signing-key-file={PKI}/sa.key",
        ]
        etcd = [str(self._programs["etcd"]), "--name=boot", "--data-dir=/var/lib/etcd"]
        for name, argv in (("etcd", etcd), ("kube-apiserver", api)):
            manifest = json.dumps(self._static_pod(name, argv), indent=1)
            self.write(f"/etc/kubernetes/manifests/{name}.json", manifest)

    def _static_pod(self, name, argv):
        directories = (str(self._paths.cache), PKI, "/var/lib/etcd")
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "kube-system"},
            "spec": {
                "hostNetwork": True,
                "containers": [
                    {
                        "name": name,
                        "image": images.BUSYBOX,
                        "imagePullPolicy": "Never",
                        "command": argv,
                        "volumeMounts": [
                            {"name": f"v{number}", "mountPath": path}
                            for number, path in enumerate(directories)
                        ],
                    }
                ],
                "volumes": [
                    {
                        "name": f"v{number}",
                        "hostPath": {"path": path, "type": "DirectoryOrCreate"},
                    }
                    for number, path in enumerate(directories)
                ],
            },
        }

    def _units(self):
        ovs = openvswitch.install(self._paths)
        programs = {name: str(file) for name, file in self._programs.items()}
        shims = self._programs["containerd-shim-runc-v2"].parent
        archives = images.archives(self._paths)
        values = {
            "path": f"{ovs}/bin:{shims}:/usr/sbin:/usr/bin:/sbin:/bin",
            "schema": openvswitch.schema(self._paths, "vswitch"),
            "archives": " ".join(str(archives[name]) for name in images.SMALL),
            "busybox": self._busybox,
            "name": NAME,
            "address": ADDRESS,
            "pki": PKI,
            **programs,
        }
        texts = {
            "agent": AGENT_UNIT,
            "containerd": CONTAINERD_UNIT,
            "kubelet": KUBELET_UNIT,
            "openvswitch-switch": OVS_UNIT,
            "ovn-controller": OVN_UNIT,
            "network": NETWORK_UNIT,
        }
        units = "/etc/systemd/system"
        for name, text in texts.items():
            self.write(f"{units}/{name}.service", text.format(**values))
        for name in KURYR:
            shipped = (REPOSITORY / "etc/systemd" / f"{name}.service").read_text()
            self.write(f"{units}/{name}.service", shipped)
        self.write(f"{units}/{TARGET}", "[Unit]\nRequires=basic.target\nAfter=basic.target\n")
        for name in (*KURYR, *texts):
            self.link(f"{units}/{TARGET}.wants/{name}.service", f"../{name}.service")

    def _kuryr(self):
        kuryr_cni()
        code = self._root / CODE.lstrip("/")
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(REPOSITORY / "kuryr_k8s", code / "kuryr_k8s", ignore=ignore)
        for egg in REPOSITORY.glob("kuryr_k8s.egg-info"):
            shutil.copytree(egg, code / egg.name)
        # that of the lab's installation, which the controller's user may use
        python = self._paths.state / "kuryr/venv/bin/python"
        for name, module in MODULES.items():
            text = (
                f"#!{python} -B\nimport sys\nsys.path.insert(0, {CODE!r})\n"
                f"from {module} import main\nmain()\n"
            )
            self.write(f"/usr/bin/{name}", text, 0o755)
        run([str(python), "-m", "compileall", "-q", str(code)])
        self._conf("kuryr", self._options())
        # the daemon has the kubelet's certificate, and so a file of its own besides
        self._conf(
            "daemon",
            {
                "kubernetes": {
                    "ssl_client_crt_file": f"{PKI}/kubelet-{NAME}.crt",
                    "ssl_client_key_file": f"{PKI}/kubelet-{NAME}.key",
                }
            },
        )
        self.write(
            "/etc/systemd/system/kuryr-k8s-daemon.service.d/conf.conf",
            "[Service]\nExecStart=\nExecStart=/usr/bin/kuryr-k8s-daemon "
            "--config-file /etc/kuryr/kuryr.conf --config-file /etc/kuryr/daemon.conf\n",
        )

    def _options(self):
        return {
            "kubernetes": {
                "api_root": topology.API_URL,
                "ssl_ca_crt_file": "/etc/kuryr/pki/ca.crt",
                "ssl_client_crt_file": "/etc/kuryr/pki/controller.crt",
                "ssl_client_key_file": "/etc/kuryr/pki/controller.key",
                "node_name": NAME,
            },
            "neutron": self._cloud.neutron_options(),
            "neutron_defaults": {
                "project": self._cloud.project_id,
                "pod_subnet": ",".join(self._cloud.pods["subnets"]),
                "pod_security_groups": self._cloud.group["id"],
                "resource_tags": "boot",
            },
            "cni_daemon": {"cni_bin_dir": "/opt/cni/bin", "cni_conf_dir": CNI_CONF},
        }

    def _conf(self, name, options):
        parser = configparser.ConfigParser(interpolation=None)
        parser.read_dict(options)
        file = self._root / f"etc/kuryr/{name}.conf"
        with file.open("w") as text:
            parser.write(text)


# The processor is emulated: the programs need a multiple of the time to start.
SLOW = "[Manager]\nDefaultTimeoutStartSec=300\n"
CONTAINERD = f"""\
version = 3
root = "/disk/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.nri.v1.nri", "io.containerd.tracing.processor.v1.otlp"]

[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = "{images.PAUSE}"

[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ["/opt/cni/bin"]
conf_dir = "{CNI_CONF}"
"""
KUBELET = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "authentication": {
        "anonymous": {"enabled": False},
        "webhook": {"enabled": False},
        "x509": {"clientCAFile": f"{PKI}/ca.crt"},
    },
    "authorization": {"mode": "AlwaysAllow"},
    "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
    "cgroupDriver": "cgroupfs",
    "staticPodPath": "/etc/kubernetes/manifests",
    "failSwapOn": False,
    "resolvConf": "/etc/resolv.conf",
    "imageGCHighThresholdPercent": 100,
    "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%"},
}
