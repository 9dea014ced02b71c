"""kuryr-cni as it is shipped, built from this tree."""

import functools
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "kuryr_k8s" / "cni" / "kuryr-cni.c"


@functools.cache
def kuryr_cni():
    """Its path; built by the package's own build step, into the sources."""
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return SOURCE.with_suffix("")


def variant(directory, old, new):
    """The path of one that differs in one place of its source, for what cannot be waited for."""
    text = SOURCE.read_text()
    assert text.count(old) == 1
    program = directory / SOURCE.stem
    command = ["cc", "-std=c11", "-x", "c", "-", "-o", program]
    subprocess.run(command, input=text.replace(old, new), text=True, check=True)
    return program
