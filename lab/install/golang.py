"""Go programs: built from module versions that go.mod and go.sum files in this directory pin.

Kubernetes has the go.mod beside this file; programs whose dependencies clash with it have modules
of their own. A binary is cached under a hash of everything that determines it.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from lab.install import debian
from lab.paths import Paths, locked
from lab.process import CommandError, run

_MODULES = Path(__file__).with_name("modules")
_KUBERNETES = "v1.36.3"
_CONTAINERD = "2.2.3"
_GO_NEEDED = (1, 26)
# What an older Go fetches from the proxy of modules, as any module.
_GO_FETCHED = "go1.27.3"


def _kubernetes_version_flags() -> str:
    """Build the linker flags that set the version.

    Without them a component reports v0.0.0-master, and kubectl ends with an error.
    """
    major, minor = _KUBERNETES[1:].split(".")[:2]
    values = {
        "gitVersion": _KUBERNETES,
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
    }
    return " ".join(
        f"-X k8s.io/{package}/version.{name}={value}"
        for package in ("component-base", "client-go/pkg")
        for name, value in values.items()
    )


@dataclass(frozen=True)
class Module:
    """A directory with go.mod, and the programs that it builds: name -> package.

    :param tests: the packages are tests, and the programs what `go test -c` makes of them.
    """

    name: str
    directory: Path
    programs: dict[str, str]
    ldflags: str = ""
    tags: str = ""
    tests: bool = False

    @property
    def key(self) -> str:
        """The key of the module's binaries: another one whenever another binary would come out."""
        digest = hashlib.sha256(f"{self.ldflags}\0{self.tags}\0".encode())
        for file in sorted(self.directory.iterdir()):
            if file.name in ("go.mod", "go.sum") or file.suffix == ".go":
                digest.update(file.read_bytes())
        return f"{self.name}-{digest.hexdigest()[:12]}"


_PLUGINS = "github.com/containernetworking/plugins/plugins"
_CONTAINERD_MODULE = "github.com/containerd/containerd/v2"
MODULES = (
    Module("etcd", _MODULES / "etcd", {"etcd": "go.etcd.io/etcd/server/v3"}),
    Module(
        "kubernetes",
        _MODULES / "kubernetes",
        {"cnitool": "github.com/containernetworking/cni/cnitool"}
        | {
            name: f"k8s.io/kubernetes/cmd/{name}"
            for name in (
                "kube-apiserver",
                "kube-controller-manager",
                "kube-scheduler",
                "kubelet",
                "kubectl",
            )
        },
        ldflags=_kubernetes_version_flags(),
    ),
    Module(
        "containerd",
        _MODULES / "containerd",
        {
            name: f"{_CONTAINERD_MODULE}/cmd/{name}"
            for name in ("containerd", "containerd-shim-runc-v2", "ctr")
        },
        ldflags=f"-X {_CONTAINERD_MODULE}/version.Version=v{_CONTAINERD}",
        tags="no_btrfs,no_zfs,no_aufs,no_devmapper,osusergo,netgo",
    ),
    Module(
        "cni-plugins",
        _MODULES / "cni-plugins",
        {
            path.rpartition("/")[2]: f"{_PLUGINS}/{path}"
            for path in (
                "main/bridge",
                "main/ptp",
                "main/loopback",
                "ipam/host-local",
                "meta/portmap",
                "meta/bandwidth",
                "meta/tuning",
            )
        },
    ),
    Module(
        "multus",
        _MODULES / "multus",
        {"multus": "gopkg.in/k8snetworkplumbingwg/multus-cni.v4/cmd/multus"},
    ),
    Module(
        "kube-proxy",
        _MODULES / "kube-proxy",
        {"kube-proxy": "k8s.io/kubernetes/cmd/kube-proxy"},
        ldflags=_kubernetes_version_flags(),
    ),
    Module("coredns", _MODULES / "coredns", {"coredns": "."}),
    Module(
        "agnhost", _MODULES / "conformance", {"agnhost": "k8s.io/kubernetes/test/images/agnhost"}
    ),
    Module(
        "conformance",
        _MODULES / "conformance",
        {"e2e.test": "k8s.io/kubernetes/test/e2e"},
        ldflags=_kubernetes_version_flags(),
        tests=True,
    ),
    Module("pause", _MODULES / "pause", {"pause": "."}),
)
# The steps of a lab that builds everything, one after another, since each of them uses all
# processors. What tests need without a lab comes first; it is a part of a module, but the rest of
# the module finds most packages compiled.
ORDER: dict[str, tuple[str, ...]] = {"etcd": ("etcd",), "kube-apiserver": ("kube-apiserver",)} | {
    module.name: tuple(module.programs)
    for module in MODULES
    # the others when they are needed: `make conformance`, and tests of `make test-all`
    if module.name not in ("etcd", "agnhost", "conformance", "kube-proxy", "multus")
}


def build(paths: Paths, module: Module, programs: list[str]) -> dict[str, Path]:
    """Build those of the programs that the cache does not have.

    One `go build` makes all of them, and one module at a time: a build uses every core anyway.

    :returns: the path of each program by its name.
    """
    directory = paths.cache / "go" / module.key
    result = {program: directory / program for program in programs}
    if all(path.exists() for path in result.values()):
        return result
    with locked(paths.cache / "locks" / "go"):
        missing = [program for program, path in result.items() if not path.exists()]
        if missing:
            _go_build(paths, module, missing, directory)
    return result


def _go_build(paths: Paths, module: Module, programs: list[str], directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory, prefix=".build-") as name:
        work = Path(name)
        go = toolchain(paths)
        argv = [
            str(go),
            *(("test", "-c") if module.tests else ("build",)),
            "-trimpath",
            "-buildvcs=false",
            "-tags",
            module.tags,
            "-gcflags=all=-dwarf=false",  # -s -w would throw it away: a seventh of the time
            "-ldflags",
            f"-s -w {module.ldflags}".strip(),
            "-o",
            f"{work}/",
            *(module.programs[program] for program in programs),
        ]
        run(argv, env=_environment(go), cwd=module.directory, timeout=3600)
        for program in programs:
            (work / _output_name(module, program)).rename(directory / program)


def _output_name(module: Module, program: str) -> str:
    """Return `go build`'s name of the binary: the package's last element but a version."""
    package = module.programs[program]
    if module.tests or package == ".":
        return program
    elements = [part for part in package.split("/") if not re.fullmatch(r"v\d+", part)]
    return elements[-1]


def toolchain(paths: Paths) -> Path:
    """Find a Go: the one in PATH if it is new enough, or one unpacked from a newer Debian.

    The latter is older than what is needed, and fetches that.
    """
    found = shutil.which("go")
    if found is not None and _version(Path(found)) >= _GO_NEEDED:
        return Path(found)
    prefix = paths.cache / "debian" / "golang"
    binary = prefix / "usr/lib/go-1.24/bin/go"
    if not binary.exists():
        debian.unpack(paths, "trixie", ("golang-1.24-go", "golang-1.24-src"), prefix)
    return binary


def source(paths: Paths, module: Module, dependency: str) -> Path:
    """Return the directory of a module that the module's programs are built from."""
    go = toolchain(paths)
    command = [str(go), "list", "-m", "-f", "{{.Dir}}", dependency]
    found = run(command, env=_environment(go), cwd=module.directory)
    return Path(found.strip())


def _environment(go: Path) -> dict[str, str]:
    return {
        "CGO_ENABLED": "0",
        "GOTOOLCHAIN": "local" if _version(go) >= _GO_NEEDED else _GO_FETCHED,
        "GOFLAGS": "-mod=readonly",
        "GOWORK": "off",
        "GOGC": "400",  # the compiler collects garbage for a quarter of its time
    }


def _version(go: Path) -> tuple[int, ...]:
    try:
        output = run([str(go), "version"], env={"GOTOOLCHAIN": "local"})
    except CommandError:
        return (0,)
    match = re.search(r"go(\d+)\.(\d+)", output)
    return tuple(int(part) for part in match.groups()) if match else (0,)
