"""The package kuryr-example as an installer leaves it: its modules, and metadata beside them."""

import shutil
import tomllib
from pathlib import Path

HERE = Path(__file__).parent


def install(directory):
    """Install the package into a directory; whoever has that on its path has the package."""
    project = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
    shutil.copytree(HERE / "kuryr_example", directory / "kuryr_example")
    info = directory / f"kuryr_example-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    lines = []
    for group, names in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {target}" for name, target in names.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
