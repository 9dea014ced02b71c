"""Every program that the lab does not take from the system's packages, by name.

A test needs only `ensure(["etcd", "kube-apiserver"])` to start a control plane of its own.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from lab.install import golang, openvswitch
from lab.paths import Paths
from lab.process import CommandError, run

# Programs that may come from the machine instead, if this is in what they call their version.
_FOREIGN = {
    "etcd": r"etcd Version: 3\.6\.",
    "kube-apiserver": r"v1\.36\.",
    "kube-controller-manager": r"v1\.36\.",
    "kube-scheduler": r"v1\.36\.",
    "kubelet": r"v1\.36\.",
}


def ensure(names: Iterable[str], paths: Paths | None = None) -> dict[str, Path]:
    """Install or build those of the programs that are missing.

    :returns: the path of each program by its name.
    :raises ValueError: the lab does not know one of them.
    """
    paths = paths or Paths.from_environment()
    wanted = list(dict.fromkeys(names))
    result = {name: path for name in wanted if (path := _foreign(name)) is not None}
    for module in golang.MODULES:
        of_module = [name for name in wanted if name in module.programs and name not in result]
        if of_module:
            result.update(golang.build(paths, module, of_module))
    switching = [name for name in wanted if name in openvswitch.PROGRAMS]
    if switching:
        prefix = openvswitch.install(paths)
        result.update({name: prefix / "bin" / name for name in switching})
    unknown = [name for name in wanted if name not in result]
    if unknown:
        raise ValueError(f"the lab does not know how to get {', '.join(unknown)}")
    return {name: result[name] for name in wanted}


def link(paths: Paths, programs: dict[str, Path]) -> None:
    """Make the programs available in the lab's directory for PATH."""
    paths.bin.mkdir(parents=True, exist_ok=True)
    for name, target in programs.items():
        place = paths.bin / name
        if place == target:  # of $KUBEBUILDER_ASSETS, which may name this very directory
            continue
        if place.is_symlink() and place.readlink() == target:
            continue
        temporary = place.with_name(f".{name}.new")
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(target)
        temporary.replace(place)


def _foreign(name: str) -> Path | None:
    """Find the program in $KUBEBUILDER_ASSETS or PATH, if it has a version that fits."""
    pattern = _FOREIGN.get(name)
    if pattern is None:
        return None
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    candidates = [str(Path(assets) / name)] if assets else []
    found = shutil.which(name)
    if found is not None and not Path(found).is_symlink():
        candidates.append(found)
    for candidate in candidates:
        try:
            version = run([candidate, "--version"], timeout=20)
        except CommandError:
            continue
        if re.search(pattern, version):
            return Path(candidate)
    return None
