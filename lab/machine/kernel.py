"""Debian's kernel for virtual machines, unpacked into the cache, and initramfs for it."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.install import debian, images
from lab.paths import Paths, locked, write_atomic
from lab.process import run

# The cloud's kernel has no drivers of network cards.
_SUITE, _KERNEL = "bookworm", "linux-image-amd64"
# Until the root is there; what is wanted later comes from it, by the kernel's own modprobe.
_EARLY = ("virtio_pci", "virtio_net", "virtiofs", "overlay")
# Where a processor changes the addresses of devices, QEMU lets the other processors know a moment
# later. One that uses an old address until then may end QEMU (assertion in iotlb_to_section), so
# there is only one until all devices have their addresses.
ONE_PROCESSOR = "maxcpus=1"
ALL_PROCESSORS = "echo 1 > /sys/devices/system/cpu/cpu1/online"
_INIT = """\
#!/bin/busybox sh
# The root: the host's / below a tmpfs. What of the host changes while the machine runs is not
# seen through an overlay, so those trees are mounted as they are.
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
modprobe -a {modules}
mount -t virtiofs -o ro root /ro || exec sh
mount -t tmpfs -o mode=755 tmpfs /rw
mkdir /rw/upper /rw/work
mount -t overlay -o lowerdir=/ro,upperdir=/rw/upper,workdir=/rw/work overlay /new
for shared in $(sed -n 's/.*shared=\\([^ ]*\\).*/\\1/p' /proc/cmdline | tr , ' '); do
  mkdir -p /new$shared
  mount --bind /ro$shared /new$shared
done
own=$(sed -n 's/.*own=\\([^ ]*\\).*/\\1/p' /proc/cmdline)
mount -t virtiofs own /new$own
for each in proc sys dev; do mount --move /$each /new/$each; done
cp /new$own/inittab /new/etc/inittab
exec switch_root /new {busybox} init
"""


@dataclass(frozen=True)
class Kernel:
    """A kernel and an initramfs for QEMU, and the directory of the modules."""

    image: Path
    initramfs: Path
    modules: Path


def install(paths: Paths) -> Kernel:
    """Unpack the kernel and make the initramfs of the lab's nodes, once."""
    init = _INIT.format(modules=" ".join(_EARLY), busybox=images.busybox(paths))
    return install_with(paths, "init", init, _EARLY)


def install_with(paths: Paths, name: str, init: str, early: Sequence[str]) -> Kernel:
    """Unpack the kernel and make an initramfs, once.

    :param name: the initramfs' name.
    :param init: the text of the first program.
    :param early: the modules that it needs.
    """
    busybox = images.busybox(paths)
    prefix = paths.cache / "debian" / _KERNEL
    with locked(paths.cache / "locks" / "kernel"):
        if not (prefix / "lib" / "modules").exists():
            debian.unpack(paths, _SUITE, (_KERNEL,), prefix, depended=True)
        (modules,) = (prefix / "lib" / "modules").iterdir()
        image = prefix / "boot" / f"vmlinuz-{modules.name}"
        if not (modules / "modules.dep").exists():
            run([str(busybox), "depmod", "-b", str(prefix), modules.name])
        initramfs, source = prefix / f"{name}.gz", prefix / name
        if not initramfs.exists() or source.read_text() != init:
            _pack(busybox, modules, (init, _files(modules, early)), initramfs)
            write_atomic(source, init)
    return Kernel(image, initramfs, modules)


def _pack(busybox: Path, modules: Path, content: tuple[str, Sequence[str]], target: Path) -> None:
    init, files = content
    root = target.with_suffix(".d")
    shutil.rmtree(root, ignore_errors=True)
    for name in ("bin", "dev", "new", "proc", "ro", "rw", "sys"):
        (root / name).mkdir(parents=True)
    shutil.copy(busybox, root / "bin" / "busybox")
    write_atomic(root / "init", init, 0o755)
    inside = root / "lib" / "modules" / modules.name
    for file in ("modules.dep", *files):
        (inside / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(modules / file, inside / file)
    new = target.with_suffix(".new")
    pack = f"{busybox} find . | {busybox} cpio -o -H newc | gzip -1 > {new}"
    run(["sh", "-c", pack], cwd=root)
    new.replace(target)
    shutil.rmtree(root)


def _files(modules: Path, early: Sequence[str]) -> list[str]:
    """List the files of the early modules and of what they depend on."""
    lines = (line.partition(":") for line in (modules / "modules.dep").read_text().splitlines())
    depends = {name: needed.split() for name, _, needed in lines}
    named = {Path(name).name.removesuffix(".ko"): name for name in depends}
    wanted = [named[module] for module in early if module in named]
    for name in wanted:
        wanted += [needed for needed in depends[name] if needed not in wanted]
    return wanted
