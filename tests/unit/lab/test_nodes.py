from __future__ import annotations

import re
from pathlib import Path

from lab.kubernetes import node
from lab.lifecycle.plan import Plan
from lab.lifecycle.supervisor import Supervisor
from lab.paths import Paths


def test_nodes_that_the_lab_no_longer_has_are_deleted_from_kubernetes(tmp_path: Path) -> None:
    paths = Paths(cache=tmp_path / "cache", state=tmp_path / "state")
    paths.bin.mkdir(parents=True)
    deleted = tmp_path / "deleted"
    program = paths.bin / "kubectl"
    program.write_text(f'#!/bin/sh\necho "$@" > {deleted}\n')
    program.chmod(0o755)

    node.forget_former(paths, ["node1", "node2", "vmnode1"])

    assert set(re.findall(r"\w*node\d", deleted.read_text())) == {
        *(f"node{number}" for number in range(3, 10)),
        *(f"vmnode{number}" for number in range(2, 10)),
    }


def test_kubelets_of_one_machine_start_one_after_another(tmp_path: Path) -> None:
    paths = Paths(cache=tmp_path / "cache", state=tmp_path / "state")
    steps = {step.name: step for step in Plan(paths, Supervisor(paths), 3).steps()}

    assert "kubelet-node1" in steps["kubelet-node2"].needs
    assert "kubelet-node2" in steps["kubelet-node3"].needs
