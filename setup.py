"""Metadata is in setup.cfg; here is how kuryr-cni, the one compiled program, is built."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.egg_info import egg_info
from setuptools.errors import CompileError

FLAGS = (
    *("-std=c11", "-O2", "-s", "-Wall", "-Wextra"),
    *("-fstack-protector-strong", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2"),
    *("-Wl,-z,relro", "-Wl,-z,now", "-Wl,-z,noexecstack"),
)
# Static, since nodes may have any C library or none; at a random address where the compiler and
# the C library can do both.
LINKING = (("-fPIE", "-static-pie"), ("-static",))
# The oldest tags of package indexes for these processors. The program loads no library, so glibc's
# and musl's tags both hold.
TAGS = {
    machine: f"manylinux_2_17_{machine}.musllinux_1_1_{machine}"
    for machine in ("x86_64", "aarch64")
}
NEEDED = (
    "kuryr-cni is a C program, linked statically: a C compiler and a static C library are "
    "needed (Debian, Ubuntu: apt-get install gcc libc6-dev; Fedora, RHEL: dnf install gcc "
    "glibc-static; Alpine: apk add gcc musl-dev), or name a compiler in $CC"
)


def compiler():
    """Return the words that call the C compiler."""
    return shlex.split(os.environ.get("CC", "cc"))


def build(commands):
    """Run the first of the commands that succeeds.

    :raises subprocess.CalledProcessError: none of them does; it is the last one's.
    """
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            break
    sys.stderr.write(done.stderr)
    done.check_returncode()


class BuildProgram(build_ext):
    """Builds a program where setuptools would build a module, in the sources with --inplace."""

    def get_ext_filename(self, fullname):
        return fullname.replace(".", os.sep)

    def build_extension(self, ext):
        target = Path(self.get_ext_fullpath(ext.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.{os.getpid()}")
        command = [*compiler(), *FLAGS, *ext.sources, "-o", temporary]
        try:
            build([*command, *options] for options in LINKING)
            temporary.replace(target)  # whole or not at all; it may be running
        except (OSError, subprocess.CalledProcessError) as error:
            raise CompileError(f"{error}\n{NEEDED}") from error
        finally:
            temporary.unlink(missing_ok=True)


class EggInfo(egg_info):
    """Leaves what is as it should be: tests that run beside find the drivers in it."""

    def write_file(self, _what, filename, data):
        path, content = Path(filename), data.encode()
        if path.exists() and path.read_bytes() == content:
            return
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        temporary.write_bytes(content)
        temporary.replace(path)


commands = {"build_ext": BuildProgram, "egg_info": EggInfo}
try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:
    pass  # setuptools before 70.1: pyproject.toml wants a newer one where a wheel is built
else:

    class Wheel(bdist_wheel):
        """One wheel for all Pythons of a processor: what is compiled knows nothing of Python."""

        def get_tag(self):
            machine = subprocess.check_output([*compiler(), "-dumpmachine"], text=True)
            tag = TAGS.get(machine.partition("-")[0], super().get_tag()[2])
            return "py3", "none", self.plat_name if self.plat_name_supplied else tag

    commands["bdist_wheel"] = Wheel

setup(
    ext_modules=[Extension("kuryr_k8s.cni.kuryr-cni", ["kuryr_k8s/cni/kuryr-cni.c"])],
    cmdclass=commands,
)
