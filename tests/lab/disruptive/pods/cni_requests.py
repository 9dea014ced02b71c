"""Requests to the plugin that no kubelet sends."""

import json
import subprocess
from pathlib import Path


def garbage_collection(cluster, valid):
    """GC as libcni sends it, to the plugin itself: (exit code, what it printed).

    Not by cnitool: it gives no list, for which libcni sends a DEL to whatever any runtime of
    the machine has cached.
    """
    node = cluster.lab.nodes["node2"]
    conflist = json.loads((Path(node.cni_conf_dir) / "10-kuryr.conflist").read_text())
    config = conflist["plugins"][0] | {
        "name": conflist["name"],
        "cniVersion": "1.1.0",
        "cni.dev/valid-attachments": valid,
        "cni.dev/attachments": valid,
    }
    done = subprocess.run(
        [f"{node.cni_bin_dir}/kuryr-cni"],
        env={"CNI_COMMAND": "GC", "CNI_PATH": node.cni_bin_dir},
        input=json.dumps(config),
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout
