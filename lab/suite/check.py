"""The test of a change within a minute: `python -m lab.suite.check`, or `make check`.

Without root and without a lab: style and types of everything, and the unit tests of the packages
that differ from a base (`make check BASE=main`; by default, what is not committed and what the
branch has beyond its upstream). `tests/lanes.toml` names more tests by feature.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePath

from lab.paths import REPOSITORY
from lab.suite.imports import importers, reached

_REQUIREMENTS = ("requirements.txt", "test-requirements.txt", "test-constraints.txt")
_UNIT = PurePath("tests/unit")
# A change of these concerns all unit tests.
_EVERYTHING = {"setup.cfg", "tests/conftest.py", "tests/unit/conftest.py", *_REQUIREMENTS}
# Names the files of tests that are not Python, and of the repository.
_PATHS = "tests/kit/paths.py"
_NO_TESTS = 5  # pytest's exit code


def main(arguments: Sequence[str] | None = None) -> int:
    """Check style and types, and run the tests that the change concerns.

    :returns: the exit code.
    """
    parser = argparse.ArgumentParser(prog="python3 -m lab.suite.check", description=__doc__)
    parser.add_argument("--base", default="", help="compare with this commit")
    base = parser.parse_args(arguments).base or _upstream()
    begin = time.monotonic()
    changed = changes(base)
    tests = select(changed, REPOSITORY)
    print(f"{len(changed)} files differ from {base}; tests: {' '.join(tests) or 'none'}")
    programs = _environment()
    env = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(REPOSITORY),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HYPOTHESIS_PROFILE": "quick",
    }
    # side by side: the type checker has one processor
    with subprocess.Popen(["sh", ".ci/lint"], cwd=REPOSITORY, env=env) as lint:
        failed = _run_tests(tests, env) if tests else 0
    print(f"after {time.monotonic() - begin:.0f} s: ", end="")
    if lint.returncode or failed:
        print("style, types or imports are wrong" if lint.returncode else "tests failed")
        return 1
    print("all passed")
    return 0


def changes(base: str) -> list[str]:
    """List the files that differ from a commit, and those that git does not know yet."""
    differ = _git("diff", "--name-only", "-z", base)
    unknown = _git("ls-files", "--others", "--exclude-standard", "-z")
    return sorted({name for name in (differ + unknown).split("\0") if name})


def select(changed: Iterable[str], root: Path) -> list[str]:
    """Choose the tests that a change concerns, as paths below the root.

    A package of the product has its unit tests in the directory of the same name below tests/unit,
    or in the nearest directory above it. What tests have in common concerns the unit tests that
    import it, and those of tests/unit/kit.
    """
    changed = list(changed)
    of_tests = any(name.startswith("tests/") for name in changed)
    lanes, imported_by = _lanes(root), importers(root) if of_tests else {}
    found: set[str] = set()
    for name in changed:
        path = PurePath(name)
        concerned = {name}
        if path.parts[0] == "tests":
            found.add(str(_UNIT / "kit"))
            concerned = reached(name if path.suffix == ".py" else _PATHS, imported_by)
            found.update(file for file in concerned if _is_unit_test(PurePath(file)))
        if not concerned.isdisjoint(_EVERYTHING):
            return [str(_UNIT)]
        for prefix, tests in lanes:
            if name.startswith(prefix):
                found.update(tests)
        if path.parts[0] in ("kuryr_k8s", "lab", "bench") and path.suffix in (".py", ".c"):
            parts = path.parent.parts[1:] if path.parts[0] == "kuryr_k8s" else path.parent.parts
            found.add(_nearest(parts, root))
        elif path.parts[0] in ("etc", "docs") or path.suffix == ".md":
            found.update(str(file.relative_to(root)) for file in (root / _UNIT).glob("test_*.py"))
    there = sorted(name for name in found if (root / name.partition("::")[0]).exists())
    return [name for name in there if not _covered(name, there)]


def _is_unit_test(path: PurePath) -> bool:
    return path.is_relative_to(_UNIT) and path.match("test_*.py")


def _covered(name: str, others: Iterable[str]) -> bool:
    """Return whether a directory among the others holds this test."""
    return any(other != name and PurePath(name).is_relative_to(other) for other in others)


def _nearest(parts: Sequence[str], root: Path) -> str:
    """Find the deepest directory of unit tests for a package."""
    for length in range(len(parts), 0, -1):
        directory = _UNIT.joinpath(*parts[:length])
        if (root / directory).is_dir():
            return str(directory)
    return str(_UNIT)


def _lanes(root: Path) -> list[tuple[str, list[str]]]:
    """Read tests/lanes.toml: the unit tests of each feature by its product packages."""
    file = root / "tests" / "lanes.toml"
    if not file.exists():
        return []
    features = tomllib.loads(file.read_text())
    found = []
    for feature in features.values():
        if isinstance(feature, dict):
            unit = [test for test in feature.get("unit", []) if test.startswith(str(_UNIT))]
            found += [(str(package), unit) for package in feature.get("packages", [])]
    return found


def _run_tests(tests: Sequence[str], env: dict[str, str]) -> int:
    subprocess.run(["python", "setup.py", "-q", "egg_info"], cwd=REPOSITORY, env=env, check=True)
    pytest = ["pytest", "-q", "-p", "no:cacheprovider", "--numprocesses=2", *tests]
    code = subprocess.run(pytest, cwd=REPOSITORY, env=env, check=False).returncode
    return 0 if code == _NO_TESTS else code


def _upstream() -> str:
    """Return the commit where the branch began, or the last one where there is no upstream."""
    for branch in ("@{upstream}", "origin/HEAD"):
        done = _try_git("merge-base", "HEAD", branch)
        if done:
            return done
    return "HEAD"


def _environment() -> Path:
    """Make the environment of tests below .tox unless it is there.

    :returns: the directory of its programs.
    """
    digest = hashlib.sha256(sys.version.encode())
    for name in _REQUIREMENTS:
        digest.update((REPOSITORY / name).read_bytes())
    venv = REPOSITORY / ".tox" / f"check-{digest.hexdigest()[:12]}"
    if not (venv / "complete").exists():
        print(f"once: installing what tests need into {venv}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(venv)], check=True)
        requirements, more, constraints = (str(REPOSITORY / name) for name in _REQUIREMENTS)
        install = [str(venv / "bin/python"), "-m", "pip", "install", "-q", "-r", requirements]
        subprocess.run([*install, "-r", more, "-c", constraints], check=True)
        (venv / "complete").touch()
    return venv / "bin"


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    done = subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, text=True)
    return done.stdout


def _try_git(*arguments: str) -> str:
    command = ["git", *arguments]
    done = subprocess.run(command, cwd=REPOSITORY, check=False, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


if __name__ == "__main__":
    sys.exit(main())
