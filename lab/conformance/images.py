"""Images that Kubernetes' end-to-end tests ask for, made by hand: there is no registry.

Each has what the tests of the network run in it, and no more. The versions are those of
test/utils/image/manifest.go in the version of Kubernetes that is tested.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from lab.install import binaries, debian, golang, images
from lab.install.images import Layer
from lab.paths import Paths, locked, write_atomic

REGISTRY = "registry.k8s.io/e2e-test-images"
AGNHOST = f"{REGISTRY}/agnhost:2.63.0"
DNS = f"{REGISTRY}/glibc-dns-testing:2.0.0"
BUSYBOX = f"{REGISTRY}/busybox:1.37.0-1"
NGINX = f"{REGISTRY}/nginx:1.15-4"
PAUSE = "registry.k8s.io/pause:3.10.2"
IMAGES = (AGNHOST, DNS, BUSYBOX, NGINX, PAUSE)
# Programs of the machine that the tests run, beside those of busybox, whose wget ends with a
# segmentation fault.
_PACKAGES = ("bash", "bind9-dnsutils", "curl", "iproute2", "libc-bin", "netcat-openbsd", "wget")
_PROGRAMS = ("bash", "dig", "curl", "ip", "ss", "getent", "nc.openbsd", "wget")
_HTTPD = ["httpd", "-f", "-p", "80", "-h", "/www"]


def archives(paths: Paths) -> dict[str, Path]:
    """Make the images as docker archives, each on first use.

    :returns: the file of each image by its name.
    """
    recipe = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:8]
    result = {
        name: paths.cache / "images" / f"{name.rpartition('/')[2].replace(':', '-')}-{recipe}.tar"
        for name in IMAGES
    }
    missing = [name for name, path in result.items() if not path.exists()]
    if missing:
        debian.install(paths, _PACKAGES)
        with locked(paths.cache / "locks" / "images"):
            for name in missing:
                write_atomic(result[name], _archive(paths, name))
    return result


def _archive(paths: Paths, name: str) -> bytes:
    if name == PAUSE:
        return images.program_archive(paths, name, "pause")
    if name == AGNHOST:
        layer = _layer(paths)
        programs = binaries.ensure(["agnhost", "coredns"], paths)
        for program in programs:
            layer.file(program, programs[program].read_bytes(), 0o755)
        layer.link("agnhost-2", "agnhost")
        porter = _agnhost_source(paths) / "porter"
        for name_of_file in ("localhost.crt", "localhost.key"):
            layer.file(name_of_file, (porter / name_of_file).read_bytes())
        layer.directory("uploads")
        return images.archive(name, layer, ["/agnhost"], ["pause"])
    if name == DNS:
        return images.archive(name, _layer(paths), None, ["sh"])
    command = _HTTPD if name == NGINX else ["sh"]
    return images.archive(name, images.busybox_layer(paths), None, command)


def _agnhost_source(paths: Paths) -> Path:
    module = next(each for each in golang.MODULES if each.name == "agnhost")
    return golang.source(paths, module, "k8s.io/kubernetes") / "test/images/agnhost"


def _layer(paths: Paths) -> Layer:
    layer = images.programs_layer(paths, _PROGRAMS)
    layer.link("bin/sh", "/usr/bin/bash")  # busybox's would run its own nc, whatever PATH says
    layer.link("usr/bin/nc", "nc.openbsd")
    return layer
