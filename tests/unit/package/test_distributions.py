"""The source distribution and the wheel: each contains all that an installation needs."""

import os
import shutil
import subprocess
import sys
import zipfile

import pytest

from tests.kit.paths import ETC, REPOSITORY

SHIPPED = {str(path.relative_to(ETC)) for path in ETC.rglob("*") if path.is_file()}
PROGRAM = "kuryr_k8s/cni/kuryr-cni"
# A compiler for another processor says which; the program that it builds is not run here.
CROSS = '#!/bin/sh\ncase "$*" in -dumpmachine) echo aarch64-linux-gnu ;; *) exec cc "$@" ;; esac\n'


def setup_py(tree, *arguments, **variables):
    """Run setup.py of a source tree."""
    done = subprocess.run(
        [sys.executable, "setup.py", "-q", *arguments],
        cwd=tree,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    """The source distribution, built from a copy, since a build leaves directories there."""
    directory = tmp_path_factory.mktemp("sdist")
    tree = directory / "tree"
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "kuryr-cni")
    for name in ("kuryr_k8s", "etc", "docs"):
        shutil.copytree(REPOSITORY / name, tree / name, ignore=ignored)
    for path in REPOSITORY.iterdir():
        if path.is_file() and path.name != ".git":
            shutil.copy2(path, tree)
    setup_py(tree, "sdist", f"--dist-dir={directory}")
    (found,) = directory.glob("*.tar.gz")
    return found


@pytest.fixture(scope="module")
def unpacked(sdist):
    """The source distribution, unpacked."""
    subprocess.run(["tar", "-xf", sdist, "-C", sdist.parent], check=True)
    return sdist.parent / sdist.name.removesuffix(".tar.gz")


@pytest.fixture(scope="module")
def wheel(unpacked):
    """The wheel that is built from the source distribution alone."""
    directory = unpacked.with_name("wheel")
    setup_py(unpacked, "bdist_wheel", f"--dist-dir={directory}")
    (found,) = directory.glob("*.whl")
    return found


def test_source_distribution_contains_what_is_installed_and_what_builds_it(unpacked):
    files = {str(path.relative_to(unpacked)) for path in unpacked.rglob("*") if path.is_file()}
    assert {f"etc/{path}" for path in SHIPPED} <= files
    assert {"kuryr_k8s/cni/kuryr-cni.c", "Containerfile", "docs/installation.md"} <= files


def test_wheel_installs_what_lies_in_etc_below_share(wheel):
    below = f"{wheel.name.split('-py3')[0]}.data/data/share/kuryr-k8s/"
    with zipfile.ZipFile(wheel) as archive:
        found = {name.removeprefix(below) for name in archive.namelist() if below in name}
        assert found == SHIPPED
        assert all(archive.read(below + path) == (ETC / path).read_bytes() for path in SHIPPED)


def test_wheel_contains_the_program_that_runtimes_start(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as archive:
        program = tmp_path / "kuryr-cni"
        program.write_bytes(archive.read(PROGRAM))
    program.chmod(0o755)
    done = subprocess.run([program], env={"CNI_COMMAND": "VERSION"}, input=b"{}", check=False)
    assert done.returncode == 0


def test_wheel_is_for_every_python_and_every_c_library_of_its_processor(wheel):
    machine = os.uname().machine
    tag = f"py3-none-manylinux_2_17_{machine}.musllinux_1_1_{machine}"
    assert wheel.name.endswith(f"-{tag}.whl")


def test_wheel_is_for_the_processor_that_the_compiler_builds_for(unpacked, tmp_path):
    compiler = tmp_path / "aarch64-linux-gnu-cc"
    compiler.write_text(CROSS)
    compiler.chmod(0o755)
    setup_py(unpacked, "bdist_wheel", f"--dist-dir={tmp_path}", CC=str(compiler))
    (found,) = tmp_path.glob("*.whl")
    tag = "py3-none-manylinux_2_17_aarch64.musllinux_1_1_aarch64"
    assert found.name.endswith(f"-{tag}.whl")
