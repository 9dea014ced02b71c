"""The virtual machine: its disk, its power, and commands in it."""

import secrets
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import lab.machine
from lab.install import qemu
from lab.machine import kernel
from lab.process import CommandError, run
from tests.kit.kube.children import free_ports
from tests.lab.machine.boot import master

EARLY = ("virtio_pci", "virtio_net", "virtio_blk", "crc32c_generic", "ext4", "virtiofs", "overlay")
INIT = """\
#!/bin/busybox sh
# The root: the host's /, read-only, below a disk of the machine's own.
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
modprobe -a {modules}
{all_processors}
mount -t virtiofs -o ro root /ro || poweroff -f
mount -t ext4 /dev/vda /rw || poweroff -f
mkdir -p /rw/upper /rw/work
mount -t overlay -o lowerdir=/ro,upperdir=/rw/upper,workdir=/rw/work overlay /new || poweroff -f
mkdir -p /new/disk
mount --bind /rw /new/disk
for each in proc sys dev; do mount --move /$each /new/$each; done
exec switch_root /new /usr/lib/systemd/systemd --unit={target}
"""
ENDS_WITH_US = ("setpriv", "--pdeathsig", "KILL", "--")  # a test run that is killed leaves none
VIRTIOFSD = "/usr/lib/qemu/virtiofsd"
MEMORY = 2048  # MiB; the host gives only what is touched
# Seconds for each step: the processor is emulated and has other work besides, and a kubelet that
# saw the API server's Pod fail five times waits for 160 s before it starts it again.
LONG = 600


class Machine:
    """A machine on whose disk everything is that a master needs.

    :param directory: for the disk and the console; the machine sees it, too.
    """

    def __init__(self, paths, directory, cloud):
        self._paths = paths
        self.directory = directory
        self._cloud = cloud
        self._processes = []
        (self._port,) = free_ports(1)
        self._token = directory / "token"
        self._client = Path(lab.machine.__file__).with_name("client.py")

    def build(self):
        """Make the disk and what QEMU needs."""
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        self._token.write_text(secrets.token_hex(16))
        seed = self.directory / "seed"
        disk = master.Disk(self._paths, seed, self._cloud)
        disk.fill(self._token.read_text(), self._client.with_name("agent.py").read_text())
        # without checksums: the module for them would have to be in the initramfs
        make = ("mkfs.ext4", "-q", "-O", "^metadata_csum", "-d", str(seed))
        run([*make, str(self.directory / "disk"), "3G"], timeout=120)
        shutil.rmtree(seed)

    def power_on(self):
        """Boot; it returns when commands can be run."""
        started = time.monotonic()
        socket = self.directory / "root.sock"
        socket.unlink(missing_ok=True)
        options = "-o source=/ -o cache=always -o sandbox=chroot -o xattr --thread-pool-size=4"
        virtiofsd = f"MALLOC_ARENA_MAX=4 exec {VIRTIOFSD} --socket-path={socket} {options}"
        self._start("virtiofsd", ["sh", "-c", virtiofsd])
        while not socket.exists():
            assert self._processes[-1].poll() is None, "virtiofsd has ended; see its log"
            time.sleep(0.02)
        self._start("console", self._qemu(socket))
        self.until("the agent answers", "true")
        return time.monotonic() - started

    def cut_power(self):
        """Kill the machine as a loss of power does: nothing is written any more."""
        for process in reversed(self._processes):
            process.kill()
            process.wait()
        self._processes.clear()

    def run(self, command, seconds=60):
        """Run a shell command in the machine; its output."""
        client = (sys.executable, "-ISE", str(self._client), str(self._port), str(self._token))
        return run([*client, "/bin/sh", "-c", command], timeout=seconds)

    def until(self, what, command, seconds=LONG):
        """Repeat a command until it succeeds; its output."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                return self.run(command)
            except (CommandError, OSError) as error:
                is_off = self._processes[-1].poll() is not None
                if time.monotonic() > deadline or is_off:
                    said = (
                        (self.directory / "console.log").read_text(errors="replace")[-2000:]
                        if is_off
                        else self.journal("kubelet", *master.KURYR, lines=200)
                    )
                    raise AssertionError(
                        f"not within {seconds} s: {what}: {error}\n{said}"
                    ) from error
            time.sleep(0.3)

    def kubectl(self, *arguments, seconds=60):
        """Run kubectl in the machine."""
        return self.run(f"{master.KUBECTL} {shlex.join(arguments)}", seconds)

    def write(self, name, text):
        """Write a file in the machine."""
        self.run(f"printf %s {shlex.quote(text)} > {name}")

    def unit(self, name):
        """Read the properties of a unit."""
        names = "ActiveState,SubState,StatusText,MainPID,NRestarts,Result"
        lines = self.run(f"systemctl show -p {names} {name}").splitlines()
        return dict(line.split("=", 1) for line in lines)

    def journal(self, *units, lines="all"):
        """Read what the units have said since this boot, or the last lines of it, with seconds
        since the boot."""
        chosen = " ".join(f"-u {unit}" for unit in units)
        return self.run(f"journalctl --no-pager -q -o short-monotonic -b -n {lines} {chosen}")

    def _start(self, name, argv):
        with (self.directory / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [*ENDS_WITH_US, *argv], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self._processes.append(process)

    def _qemu(self, socket):
        init = INIT.format(
            modules=" ".join(EARLY),
            all_processors=kernel.ALL_PROCESSORS,
            target=master.TARGET,
        )
        files = kernel.install_with(self._paths, "init-systemd", init, EARLY)
        append = (
            "console=ttyS0 panic=-1 random.trust_cpu=on net.ifnames=0 mitigations=off "
            "tsc=reliable nohz=off highres=off systemd.mask=timers.target systemd.show_status=0 "
            f"{kernel.ONE_PROCESSOR}"
        )
        forward = f"hostfwd=tcp:127.0.0.1:{self._port}-{master.ADDRESS}:7000"
        return [
            *qemu.install(self._paths),
            *("-accel", "tcg,thread=multi,tb-size=512", "-cpu", "max"),
            *("-m", str(MEMORY), "-smp", "2", "-display", "none", "-nodefaults", "-no-reboot"),
            *("-serial", "stdio", "-kernel", str(files.image), "-initrd", str(files.initramfs)),
            *("-append", append),
            *("-object", f"memory-backend-memfd,id=memory,size={MEMORY}M,share=on"),
            *("-numa", "node,memdev=memory"),
            *("-drive", f"file={self.directory}/disk,format=raw,if=virtio,cache=writeback"),
            *("-netdev", f"user,id=eth0,{forward}"),
            *("-device", "virtio-net-pci,netdev=eth0,romfile="),
            *("-chardev", f"socket,id=root,path={socket}"),
            *("-device", "vhost-user-fs-pci,chardev=root,tag=root"),
        ]
