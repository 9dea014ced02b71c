"""What an installer writes beside a package's modules."""


def describe_package(directory, name, group, *entry_points):
    """Write the metadata of version 1.0 of a package with these entry points."""
    info = directory / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("\n".join([f"[{group}]", *entry_points]) + "\n")
