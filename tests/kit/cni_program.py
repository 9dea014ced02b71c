"""kuryr-cni as it is shipped, built from this tree."""

import functools
import os
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


def build(directory, compiler):
    """The path of one that this compiler builds, by the package's own build step."""
    command = [sys.executable, "setup.py", "-q", "build_ext", f"--build-lib={directory}"]
    environment = os.environ | {"CC": str(compiler)}
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    return directory / SOURCE.relative_to(ROOT).with_suffix("")


def variant(directory, *changes):
    """The path of one whose source differs, for what cannot be waited for.

    :param changes: (old, new); each old text is there once.
    """
    text = SOURCE.read_text()
    for old, new in changes:
        assert text.count(old) == 1
        text = text.replace(old, new)
    program = directory / SOURCE.stem
    command = ["cc", "-std=c11", "-x", "c", "-", "-o", program]
    subprocess.run(command, input=text, text=True, check=True)
    return program
