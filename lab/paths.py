"""The lab's directories, and files that are written so that a kill cannot break them.

Two trees: the cache holds what was installed or built and can be kept for ever; the state holds
one lab's configuration, databases and logs and is deleted by `down --purge`.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
SOURCE = REPOSITORY / "lab"


@dataclass(frozen=True)
class NodePaths:
    """The directories of one node; nothing in them is shared with another node."""

    root: Path

    @property
    def ovs(self) -> Path:
        """Database, sockets and pid files of the node's Open vSwitch and ovn-controller."""
        return self.root / "ovs"

    @property
    def ovs_socket(self) -> Path:
        return self.ovs / "db.sock"

    @property
    def containerd(self) -> Path:
        return self.root / "containerd"

    @property
    def containerd_socket(self) -> Path:
        return self.root / "containerd.sock"

    @property
    def kubelet(self) -> Path:
        return self.root / "kubelet"

    @property
    def pod_logs(self) -> Path:
        return self.root / "podlogs"

    @property
    def static_pods(self) -> Path:
        return self.root / "static"

    @property
    def cni_conf(self) -> Path:
        return self.root / "cni" / "net.d"

    @property
    def cni_bin(self) -> Path:
        return self.root / "cni" / "bin"


@dataclass(frozen=True)
class Paths:
    """The two trees, as `Paths.from_environment()` builds them."""

    cache: Path
    state: Path

    @classmethod
    def from_environment(cls) -> Paths:
        """Build the paths from KURYR_LAB_CACHE and KURYR_LAB_STATE."""
        cache = os.environ.get("KURYR_LAB_CACHE", "/var/cache/kuryr-lab")
        state = os.environ.get("KURYR_LAB_STATE", "/var/lib/kuryr-lab")
        return cls(Path(cache).absolute(), Path(state).absolute())

    @property
    def logs(self) -> Path:
        return self.state / "logs"

    @property
    def run(self) -> Path:
        """Sockets and pid files of what is not part of a node."""
        return self.state / "run"

    @property
    def etc(self) -> Path:
        return self.state / "etc"

    @property
    def data(self) -> Path:
        return self.state / "data"

    @property
    def pki(self) -> Path:
        return self.state / "pki"

    @property
    def bin(self) -> Path:
        """One directory with every program of the lab, for PATH."""
        return self.state / "bin"

    @property
    def components(self) -> Path:
        return self.state / "components"

    @property
    def facts(self) -> Path:
        return self.state / "lab.json"

    @property
    def clouds(self) -> Path:
        return self.state / "clouds.yaml"

    @property
    def admin_kubeconfig(self) -> Path:
        return self.pki / "admin.kubeconfig"

    def node(self, name: str) -> NodePaths:
        return NodePaths(self.state / "nodes" / name)

    def create(self) -> None:
        """Make the directories that everything else takes for granted."""
        for path in (
            self.cache,
            self.logs,
            self.run,
            self.etc,
            self.data,
            self.pki,
            self.bin,
            self.components,
        ):
            path.mkdir(parents=True, exist_ok=True)


def write_atomic(path: Path, content: str | bytes, mode: int = 0o644) -> None:
    """Write the file so that nobody, not even after a kill, ever sees a part of it."""
    data = content.encode() if isinstance(content, str) else content
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        temporary = Path(name)
        temporary.chmod(mode)
        temporary.replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


@contextmanager
def locked(path: Path, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold an exclusive lock on the file; the kernel drops it when the process dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if waiting is not None:
                waiting()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
