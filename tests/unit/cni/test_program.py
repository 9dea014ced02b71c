"""kuryr-cni as a compiled program: it needs nothing of the node, and is hardened."""

import subprocess
import sys

import pytest

from tests.kit import elf
from tests.kit.cni_program import build, kuryr_cni


@pytest.fixture(scope="module")
def program():
    return elf.Elf(kuryr_cni())


def test_it_needs_no_loader_and_no_library(program):
    assert elf.INTERPRETER not in program.segments
    assert elf.NEEDED not in program.dynamic


def test_it_runs_at_a_random_address_where_the_compiler_can_do_that(program):
    assert program.type == elf.SHARED_OBJECT


def test_what_is_relocated_is_read_only_before_it_runs(program):
    assert elf.RELRO in program.segments
    assert program.dynamic[elf.FLAGS] & elf.BIND_NOW


def test_its_stack_is_not_executable(program):
    assert not program.segments[elf.STACK] & elf.EXECUTE


@pytest.fixture(scope="module")
def object_file(tmp_path_factory):
    """What is compiled of its source alone, without the C library."""
    directory = tmp_path_factory.mktemp("object")
    compiler, found = directory / "cc", directory / "kuryr-cni.o"
    script(compiler, f'cc "$@" && exec cc "$@" -c -o {found}')
    build(directory, compiler)
    return found.read_bytes()


@pytest.mark.parametrize("check", [b"__stack_chk_fail", b"__vsnprintf_chk"])
def test_its_own_code_checks_the_stack_and_the_sizes_of_buffers(object_file, check):
    assert check in object_file


def test_a_compiler_that_cannot_link_for_a_random_address_builds_it_all_the_same(tmp_path):
    compiler = tmp_path / "cc"
    script(compiler, 'case " $* " in *" -static-pie "*) exit 1 ;; esac\nexec cc "$@"')
    program = build(tmp_path, compiler)
    assert elf.Elf(program).type == elf.EXECUTABLE
    done = subprocess.run([program], env={"CNI_COMMAND": "VERSION"}, input=b"{}", check=False)
    assert done.returncode == 0


def script(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_daemon_loads_of_pyroute2_what_it_needs_and_others_get_all_of_it():
    script = """
import sys
import kuryr_k8s.cni.app
from kuryr_k8s.cni.netlink.pyroute import IPRoute
with IPRoute() as netlink:
    assert netlink.get_links()
assert "pyroute2.ndb" not in sys.modules
assert "sqlite3" not in sys.modules
import pyroute2
from pyroute2 import NFCTSocket, netns
assert NFCTSocket and pyroute2.netns is netns and pyroute2.IPRoute is IPRoute
assert "pyroute2.ndb" in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)
