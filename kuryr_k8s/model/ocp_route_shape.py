"""Check that the fields of a Route have the types of OpenShift's API. Pure.

A definition of Routes that is not OpenShift's may let any content pass.
"""

from collections.abc import Iterator
from typing import Any

LONGEST_TEXT = 4096  # characters of a path, which is the longest text but for certificates
PEM = "certificate"  # a text of any length
TARGET = {"kind": str, "name": str, "weight": int}
SPEC = {
    "host": str,
    "subdomain": str,
    "path": str,
    "to": TARGET,
    "alternateBackends": [TARGET],
    "port": {"targetPort": (str, int)},
    "wildcardPolicy": str,
    "tls": {
        "termination": str,
        "insecureEdgeTerminationPolicy": str,
        "certificate": PEM,
        "key": PEM,
        "caCertificate": PEM,
        "destinationCACertificate": PEM,
        "externalCertificate": {"name": str},
    },
    "httpHeaders": {},
}
CONDITION = {"type": str, "status": str, "lastTransitionTime": str}
STATUS = {"ingress": [{"routerName": str, "conditions": [CONDITION]}]}


def flaw_of(found: Any, shape: Any, where: str) -> str:
    """Return which field has another type, in words for users.

    :param found: what the API has there.
    :param shape: SPEC or STATUS, or a part of them.
    :param where: the path of the field.
    :returns: empty if all have the right ones; None is as good as nothing.
    """
    return next(_flaws(found, shape, where), "")


def _flaws(found: Any, shape: Any, where: str) -> Iterator[str]:
    if found is None:
        return
    if isinstance(shape, dict):
        if not isinstance(found, dict):
            yield f"{where}: it is no object"
            return
        for name, inner in shape.items():
            yield from _flaws(found.get(name), inner, f"{where}.{name}")
    elif isinstance(shape, list):
        if not isinstance(found, list):
            yield f"{where}: it is no list"
            return
        for place, each in enumerate(found):
            if each is None:
                yield f"{where}[{place}]: it is null"
            yield from _flaws(each, shape[0], f"{where}[{place}]")
    elif not isinstance(found, str if shape == PEM else shape) or isinstance(found, bool):
        yield f"{where}: it has another type than in OpenShift's API"
    elif shape != PEM and isinstance(found, str) and len(found) > LONGEST_TEXT:
        yield f"{where}: it has more than {LONGEST_TEXT} characters"
