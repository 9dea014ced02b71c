"""Metadata is in setup.cfg; here is how kuryr-cni, the one compiled program, is built."""

import os
import shlex
import subprocess
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.egg_info import egg_info
from setuptools.errors import CompileError

FLAGS = ("-std=c11", "-O2", "-static", "-s", "-Wall", "-Wextra")
NEEDED = (
    "kuryr-cni is a C program, linked statically: a C compiler and a static C library are "
    "needed (Debian, Ubuntu: apt-get install gcc libc6-dev; Fedora, RHEL: dnf install gcc "
    "glibc-static; Alpine: apk add gcc musl-dev), or name a compiler in $CC"
)


class BuildProgram(build_ext):
    """Builds a program where setuptools would build a module, in the sources with --inplace."""

    def get_ext_filename(self, fullname):
        return fullname.replace(".", os.sep)

    def build_extension(self, ext):
        target = Path(self.get_ext_fullpath(ext.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.{os.getpid()}")
        compiler = shlex.split(os.environ.get("CC", "cc"))
        try:
            subprocess.run([*compiler, *FLAGS, *ext.sources, "-o", temporary], check=True)
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
        """One wheel for all Pythons of a platform: what is compiled knows nothing of Python."""

        def get_tag(self):
            return "py3", "none", super().get_tag()[2]

    commands["bdist_wheel"] = Wheel

setup(
    ext_modules=[Extension("kuryr_k8s.cni.kuryr-cni", ["kuryr_k8s/cni/kuryr-cni.c"])],
    cmdclass=commands,
)
