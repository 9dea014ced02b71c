"""Names of entry points that several installed packages use: which packages these are."""

from importlib import metadata


def packages(group: str, name: str) -> str:
    """Describe for operators which objects an entry point's name stands for.

    :returns: each object with the distribution that brings it, such as
        ``a.b:C of the package a 1.0 and d.e:F of the package d 2.0``.
    """
    found = {}
    for entry_point in metadata.entry_points(group=group, name=name):
        package = entry_point.dist
        of = f"{package.name} {package.version}" if package is not None else "without a name"
        found[entry_point.value] = f"{entry_point.value} of the package {of}"
    return " and ".join(found[value] for value in sorted(found))
