"""Entry points that several installed packages give the same name."""

from importlib import metadata


def ambiguity(group: str, name: str) -> str:
    """Describe for operators which objects an entry point's name stands for, and the remedy.

    :returns: each object with the distribution that brings it, such as ``'c' is not unique: a.b:C
        of the package a 1.0 and d.e:F of the package d 2.0; remove all but one of …``.
    """
    found = {}
    for entry_point in metadata.entry_points(group=group, name=name):
        package = entry_point.dist
        of = f"{package.name} {package.version}" if package is not None else "without a name"
        found[entry_point.value] = f"{entry_point.value} of the package {of}"
    packages = " and ".join(found[value] for value in sorted(found))
    return f"{name!r} is not unique: {packages}; remove all but one of these packages"
