"""Imports among the modules of tests, direct and indirect."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath


def importers(root: Path) -> dict[str, set[str]]:
    """Return the files below tests that import a file, by its path below the root.

    The file need not exist any more.
    """
    found: dict[str, set[str]] = defaultdict(set)
    for file in (root / "tests").rglob("*.py"):
        name = str(file.relative_to(root))
        for imported in _imports(ast.parse(file.read_text())):
            found[imported].add(name)
    return found


def reached(name: str, by: Mapping[str, set[str]]) -> set[str]:
    """Return all files that a change of one concerns, itself included.

    :param by: what :func:`importers` returned.
    """
    found, new = {name}, {name}
    while new:
        new = set().union(*(by.get(file, set()) for file in new)) - found
        found |= new
    return found


def _imports(tree: ast.Module) -> Iterator[str]:
    """Yield the paths that imported modules of tests may have."""
    for node in ast.walk(tree):
        modules: list[str] = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            modules = [f"{node.module}.{alias.name}" for alias in node.names]
        for module in modules:
            parts = module.split(".")
            if parts[0] == "tests":
                for length in range(1, len(parts) + 1):
                    path = PurePath(*parts[:length])
                    yield f"{path}.py"
                    yield str(path / "__init__.py")
