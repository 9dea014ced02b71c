"""Recognition of what Octavia cannot do, by the words of its answers.

No call tells users what a provider can do. Octavia answers 501 for what the provider cannot do,
and 400 or 403 for what it cannot do itself, or is configured not to do. https://docs.openstack.org/octavia/latest/user/feature-classification/
"""

import dataclasses
import re
from collections.abc import Iterator
from contextlib import contextmanager

from kuryr_k8s import errors
from kuryr_k8s.model.load_balancer import HealthMonitor

UNSUPPORTED = 501
# an attribute of a body that this version of the API does not know, or does not accept
_ATTRIBUTE = re.compile(r"field/attribute (\w+)|^Unknown attribute for argument [\w.]+: (\w+)")
_MONITOR = ("healthmonitor", *(field.name for field in dataclasses.fields(HealthMonitor)))
_NAMES = {"session_persistence": "persistence", **dict.fromkeys(_MONITOR, "health_monitor")}
# The first match counts. The words are from octavia/common/exceptions.py, octavia/api/v2 and the
# providers' drivers.
FEATURES = tuple(
    (feature, re.compile(words, re.IGNORECASE))
    for feature, words in (
        ("allowed_cidrs", "allowed.cidrs|^validation failure: CIDR "),
        ("insert_headers", "insert.headers|header insertion"),
        ("health_monitor", "health monitor|health check|type is only supported for pools"),
        ("lb_algorithm", "support [A-Z_]+ algorithm"),
        ("persistence", "session persistence|session_persistence|persistence_timeout"),
        ("tls_versions", "TLS versions"),
        ("tls_ciphers", "cipher"),
        ("client_authentication", "client authentication|client certificate|client CA"),
        ("default_tls_container_ref", "certificate"),
        ("flavor_id", "flavor"),
        ("availability_zone", "availability.zone"),
        ("vip_port_id", "use of vip_port_id is disallowed"),
        ("vip_network_id", "use of vip_network_id is disallowed"),
        ("protocol", r"support \S+ protocol|not allowed in this deployment: [A-Z_]+$"),
        ("provider", r"^Provider '\S+' (is not enabled|was not found)"),
    )
)


@contextmanager
def named() -> Iterator[None]:
    """Raise refusals of what cannot be done as such.

    :raises errors.Unsupported: replaces an :class:`errors.BadRequest`.
    """
    try:
        yield
    except errors.BadRequest as error:
        feature = _feature_of(error.brief)
        if not feature and error.status != UNSUPPORTED:
            raise
        raise errors.Unsupported(
            error.brief,
            feature=feature,
            status=error.status,
            request_id=error.request_id,
            text=error.text,
        ) from error


def _feature_of(text: str) -> str:
    if attribute := _ATTRIBUTE.search(text):
        name = attribute[1] or attribute[2]
        return _NAMES.get(name, name)
    return next((feature for feature, words in FEATURES if words.search(text)), "")
