"""A virtual machine: the files that it boots by, its command line, and commands in it.

It caches the host's files for good, without which a start of Python takes three times as long:
`refresh` after changing some. Its own directory is looked at anew each time.
"""

from __future__ import annotations

import secrets
import shlex
from dataclasses import replace
from pathlib import Path

from lab import topology
from lab.install import images, qemu
from lab.lifecycle import probes
from lab.lifecycle.supervisor import Component
from lab.machine import kernel
from lab.paths import Paths, write_atomic
from lab.process import run
from lab.topology import Worker

MEMORY = 1280  # MiB; the host gives only what is touched
_VIRTIOFSD = "/usr/lib/qemu/virtiofsd"
# Without a limit malloc counts the processors when a ninth thread allocates. For that system call
# seccomp kills virtiofsd, and the machine waits for its files for ever.
_ARENAS = "MALLOC_ARENA_MAX=4"
# The userspace datapath forwards frames as they are: they need their checksums, and one by one.
_NO_OFFLOADS = ",".join(
    f"{option}=off"
    for option in (
        *("csum", "gso", "guest_csum", "guest_tso4", "guest_tso6", "guest_ufo"),
        *("host_tso4", "host_tso6", "host_ufo"),
    )
)
_TAP = "script=no,downscript=no,vhost=off"
_PLAIN_TAP = f"{_TAP},vnet_hdr=off"  # the emulated card completes frames itself
CARD = "card"  # the interface of the card with virtual functions, in the machine
VIRTUAL_FUNCTIONS = 4
# Wiped by a boot, as they are on tmpfs; what else is in the node's directory is its disk.
_VOLATILE = ("containerd", "containerd-state", "kubelet", "opt")


def name(worker: Worker) -> str:
    """Return the name of the machine's component."""
    return f"vm-{worker.name}"


def component(paths: Paths, worker: Worker) -> Component:
    """Describe the component that runs QEMU with its two virtiofsd."""
    script = paths.node(worker.name).root / "machine.sh"
    return Component(
        name(worker),
        ("/bin/sh", str(script)),
        ready=(probes.command(*command(paths, worker, "true")),),
        timeout=90,
        grace=3,
        files=(str(script), str(script.with_name("boot.sh")), str(script.with_name("agent.py"))),
    )


def command(paths: Paths, worker: Worker, *argv: str) -> tuple[str, ...]:
    """Build the host's command line of a command in the machine."""
    root = paths.node(worker.name).root
    client = ("/usr/bin/env", "python3", "-ISE", str(root / "client.py"))
    return (*client, str(worker.agent_port), str(root / "token"), *argv)


def inside(paths: Paths, worker: Worker, component: Component) -> Component:
    """Move a daemon into the machine.

    :returns: the component that runs it there.
    """
    return replace(
        component,
        argv=command(paths, worker, *component.argv),
        ready=tuple(_asked_inside(paths, worker, probe) for probe in component.ready),
        needs=(*component.needs, name(worker)),
        netns=None,
        hostname=None,
        timeout=component.timeout * 3,
        grace=component.grace * 2,
        keeps_children=False,
    )


def _asked_inside(paths: Paths, worker: Worker, probe: probes.Probe) -> probes.Probe:
    """Move a probe into the machine, except of what anybody reaches: servers with TLS.

    The machine's security group lets the host in only from the node's address in the cloud, which
    the host has once kuryr_k8s runs.
    """
    url = probe.target[0]
    if probe.kind == "command":
        target = probe.target
    elif url.startswith("http:"):
        target = (str(images.busybox(paths)), "wget", "-q", "-O", "-", url)
    else:
        return probe
    return replace(probe, kind="command", target=command(paths, worker, *target))


def refresh(paths: Paths, worker: Worker) -> None:
    """Let the machine see what has changed in the host's files since it read them."""
    drop = "echo 2 > /proc/sys/vm/drop_caches"
    run(command(paths, worker, "/bin/sh", "-c", drop), timeout=60)


def prepare(paths: Paths, worker: Worker) -> None:
    """Write the machine's files and add its tap, before it boots."""
    root, source = paths.node(worker.name).root, Path(__file__).parent
    for part in (*_VOLATILE, "disk"):
        (root / part).mkdir(parents=True, exist_ok=True)
    if not (root / "token").exists():
        write_atomic(root / "token", secrets.token_hex(16), mode=0o600)
    for part in ("agent.py", "client.py"):
        write_atomic(root / part, (source / part).read_text())
    busybox = images.busybox(paths)
    agent = f"/usr/bin/python3 -ISE {root}/agent.py {root}/token"
    write_atomic(root / "inittab", f"::sysinit:/bin/sh {root}/boot.sh\n::respawn:{agent}\n")
    write_atomic(root / "boot.sh", _boot(paths, worker, busybox))
    write_atomic(root / "machine.sh", _machine(paths, worker))
    for tap in (worker.tap, worker.card_tap):
        run(["ip", "tuntap", "add", "dev", tap, "mode", "tap"], check=False)
        run(["ip", "link", "set", tap, "mtu", "1500", "up"])


def _boot(paths: Paths, worker: Worker, busybox: Path) -> str:
    """Build the script that the machine runs before the agent starts."""
    modules = kernel.install(paths).modules
    network = topology.WORKER_NETWORK
    root = paths.node(worker.name).root
    return "\n".join(
        (
            f"b={busybox}",
            "$b mkdir -p /dev/pts /dev/shm",
            "$b mount -t devpts devpts /dev/pts",
            *(f"$b mount -t tmpfs tmpfs {path}" for path in ("/dev/shm", "/run", "/tmp")),
            *(f"$b mount -t tmpfs tmpfs {root}/{path}" for path in _VOLATILE),
            "$b mount -t cgroup2 cgroup2 /sys/fs/cgroup",
            f"$b hostname {worker.name}",
            f"$b mkdir -p /lib/modules/{modules.name}",
            f"$b mount --bind {modules} /lib/modules/{modules.name}",
            # The kernel's own: it asks for modules as they are needed.
            "$b ln -s $b /run/modprobe",
            "echo /run/modprobe > /proc/sys/kernel/modprobe",
            "for each in all default eth0; do",
            "  echo 0 > /proc/sys/net/ipv6/conf/$each/accept_ra",
            "  echo 0 > /proc/sys/net/ipv6/conf/$each/accept_dad",
            "done",
            "echo 1 > /proc/sys/net/ipv4/ip_forward",
            "echo 1 > /proc/sys/net/ipv6/conf/all/forwarding",
            "$b ip link set lo up",
            f"$b ip link set eth0 mtu {topology.POD_MTU} up",
            f"$b ip addr add {worker.internal_v4}/24 dev eth0",
            f"$b ip addr add {worker.internal_v6}/64 dev eth0",
            f"$b ip route add default via {network.gateway_v4} dev eth0",
            f"$b ip -6 route add default via {network.gateway_v6} dev eth0",
            "$b ip link set eth1 up",
            "$b ip addr add 10.0.2.15/24 dev eth1",
            "$b modprobe -a igbvf igb",
            f"$b ip link set eth2 name {CARD}",
            f"$b ip link set {CARD} up",  # or its functions have no MAC
            f"echo {VIRTUAL_FUNCTIONS} > /sys/class/net/{CARD}/device/sriov_numvfs",
            kernel.ALL_PROCESSORS,
            "",
        )
    )


def _machine(paths: Paths, worker: Worker) -> str:
    """Build the script that becomes QEMU. A virtiofsd serves one boot, and ends with it."""
    root, run_dir = paths.node(worker.name).root, paths.run / worker.name
    files = kernel.install(paths)
    shared = f"{paths.state},{paths.cache}"
    append = (
        f"console=ttyS0 panic=-1 quiet random.trust_cpu=on shared={shared} own={root} "
        # "tsc": each look at the emulated HPET is a system call and an exit, and Go looks often
        f"net.ifnames=0 mitigations=off tsc=reliable {kernel.ONE_PROCESSOR} "
        # A periodic tick: QEMU may lose the wake-up of an idle processor. A timer that is set
        # once would then never fire («rcu_preempt kthread timer wakeup didn't happen»).
        "nohz=off highres=off"
    )
    forward = f"hostfwd=tcp:127.0.0.1:{worker.agent_port}-10.0.2.15:7000"
    argv: list[str] = [
        *qemu.install(paths),
        *("-machine", "q35", "-accel", "tcg,thread=multi,tb-size=256", "-cpu", "max"),
        *("-m", str(MEMORY), "-smp", "2", "-display", "none", "-nodefaults", "-no-reboot"),
        *("-serial", "stdio", "-kernel", str(files.image), "-initrd", str(files.initramfs)),
        *("-append", append),
        *("-object", f"memory-backend-memfd,id=memory,size={MEMORY}M,share=on"),
        *("-numa", "node,memdev=memory"),
        *("-netdev", f"tap,id=eth0,ifname={worker.tap},{_TAP}"),
        *("-device", f"virtio-net-pci,netdev=eth0,mac={worker.mac},romfile=,{_NO_OFFLOADS}"),
        # Only for the agent: what the cluster does goes through Neutron.
        *("-netdev", f"user,id=eth1,restrict=on,{forward}"),
        *("-device", "virtio-net-pci,netdev=eth1,romfile="),
        *("-device", "pcie-root-port,id=card-port,chassis=1"),
        *("-netdev", f"tap,id=card,ifname={worker.card_tap},{_PLAIN_TAP}"),
        *("-device", f"igb,bus=card-port,netdev=card,mac={worker.card_mac},romfile="),
    ]
    lines = [f"rm -f {run_dir}/*.sock", f"mkdir -p {run_dir}"]
    for tag, source, cache in (("root", "/", "always"), ("own", root, "auto")):
        socket = run_dir / f"{tag}.sock"
        options = f"-o source={source} -o cache={cache} -o sandbox=chroot -o xattr"
        lines += [
            f"{_ARENAS} {_VIRTIOFSD} --socket-path={socket} {options} --thread-pool-size=4 &",
            f"while [ ! -S {socket} ]; do sleep 0.02; done",
        ]
        argv += [
            *("-chardev", f"socket,id={tag},path={socket}"),
            *("-device", f"vhost-user-fs-pci,chardev={tag},tag={tag}"),
        ]
    return "\n".join((*lines, f"exec {shlex.join(argv)}", ""))
