"""kuryr-cni for another processor: built by a cross compiler, and run by an emulator."""

import json
import subprocess

import pytest

from lab.install import debian
from lab.paths import Paths
from tests.kit import elf
from tests.kit.cni_program import build

COMPILER = "aarch64-linux-gnu-gcc"
PACKAGES = ("gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross", "qemu-user-static")


@pytest.mark.complete
def test_program_for_aarch64_is_hardened_and_answers(tmp_path):
    paths = Paths.from_environment()
    paths.create()
    debian.install(paths, PACKAGES)
    program = build(tmp_path, COMPILER)
    headers = elf.Elf(program)
    assert (headers.machine, headers.type) == ("aarch64", elf.SHARED_OBJECT)
    assert elf.INTERPRETER not in headers.segments
    assert elf.NEEDED not in headers.dynamic
    assert elf.RELRO in headers.segments
    assert headers.dynamic[elf.FLAGS] & elf.BIND_NOW
    done = subprocess.run(
        ["/usr/bin/qemu-aarch64-static", program],
        env={"CNI_COMMAND": "VERSION", "PATH": "/usr/bin"},
        input=b"{}",
        capture_output=True,
        check=True,
    )
    assert "1.1.0" in json.loads(done.stdout)["supportedVersions"]
