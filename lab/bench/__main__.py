"""All benchmarks, with all that they need: `python -m lab.bench [NAME…]`, or `make bench`.

`ancestor` runs only by its name (`make bench-ancestor`): it brings a foreign program. Those that
need no lab come first, with nothing else running; then the lab comes up with the product on it for
the others, and is stopped at the end if it was not up before.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

from lab.install import tox
from lab.lifecycle.lab import Lab
from lab.paths import REPOSITORY, Paths

ALONE = ("pods", "services", "rollout", "restart", "neutronports", "storm")
ON_LAB = ("cni", "lab", "lab_services", "lab_rollout", "lab_burst", "lab_l7", "nested")
APART = ("ancestor",)


def main(arguments: Sequence[str]) -> int:
    """Run the benchmarks that are named, or all.

    From the first option on, arguments are each benchmark's own.

    :returns: the exit code: 1 where a benchmark failed or missed a target, 2 where there is none
        of a name.
    """
    first = (at for at, argument in enumerate(arguments) if argument.startswith("-"))
    at = next(first, len(arguments))
    names, options = arguments[:at], arguments[at:]
    unknown = [name for name in names if name not in ALONE + APART + ON_LAB]
    if unknown:
        print(f"there is no benchmark {', '.join(unknown)}", file=sys.stderr)
        return 2
    asks_help = not {"-h", "--help"}.isdisjoint(options)
    if asks_help and not names:
        print(__doc__)
        return 0
    wanted = names or ALONE + ON_LAB
    paths = Paths.from_environment()
    paths.create()
    program = tox.ensure(paths)
    for make in (tox.prepare(paths, program), tox.entry_points(paths, program)):
        if not _run(make):
            return 1
    command = [*tox.inside(paths, program), "python", "-m", "bench"]
    if asks_help:  # touches no lab
        return 0 if _bench(paths, command, names, options) else 1
    ok = _bench(paths, command, [name for name in ALONE + APART if name in wanted], options)
    on_lab = [name for name in ON_LAB if name in wanted]
    if on_lab:
        was_up = set(Lab().status().values()) == {"ready"}
        if _run([sys.executable, "-m", "lab", "up"]):
            up = _run([sys.executable, "-m", "lab.kuryr", "up"])
            ok = up and _bench(paths, command, on_lab, options) and ok
        else:
            ok = False
        if not was_up and "KEEP_LAB" not in os.environ:
            _run([sys.executable, "-m", "lab", "down"])
    return 0 if ok else 1


def _bench(
    paths: Paths, command: Sequence[str], names: Sequence[str], options: Sequence[str]
) -> bool:
    """Run these benchmarks, even after one has failed.

    :returns: whether all of them succeeded.
    """
    search = f"{paths.bin}:{os.environ['PATH']}"  # Open vSwitch's tools
    reached = [_run([*command, name, *options], PATH=search) for name in names]
    return all(reached)


def _run(argv: Sequence[str], **env: str) -> bool:
    done = subprocess.run(argv, cwd=REPOSITORY, env={**os.environ, **env}, check=False)
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
