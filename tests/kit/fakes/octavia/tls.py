"""What is refused of certificates, versions and ciphers, of listeners and of pools."""

from __future__ import annotations

import re
from typing import Any

from cryptography import x509

from tests.kit.fakes.faults import Answer

from . import errors
from .store import Store

Json = dict[str, Any]
PROTOCOL = "TERMINATED_HTTPS"
_VERSIONS = ("SSLv3", "TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3")
_CA, _CRL = "client_ca_tls_container_ref", "client_crl_container_ref"
# what Octavia chooses, as it is configured where it is not told
_OF_POOLS = "ca_tls_container_ref"
_CHOSEN_OF_POOLS = {"tls_ciphers": 15, "tls_versions": 17, "alpn_protocols": 24}
_CHOSEN = {"tls_versions": ["TLSv1.2", "TLSv1.3"], "tls_ciphers": "TLS_AES_128_GCM_SHA256"}


def check(protocol: str, present: Json, given: Json, certificates: set[str]) -> None:
    """400 for what does not fit together.

    :param present: a listener that there is; empty for a new one.
    :param given: its changes, or the new one.
    :param certificates: references that there are.
    """
    default, others = given.get("default_tls_container_ref"), given.get("sni_container_refs")
    references = [*(others or ()), *([default] if default else ())]
    if protocol != PROTOCOL and (references or given.get(_CA)):
        raise errors.invalid(
            f"Certificate container references are not allowed on {protocol} protocol listeners."
        )
    authority, revoked = (given.get(name) or present.get(name) for name in (_CA, _CRL))
    mode = given.get("client_authentication") or "NONE"
    if mode != "NONE" and not authority:
        raise errors.invalid(
            f"Client authentication setting {mode} requires a client CA container reference."
        )
    if revoked and not authority:
        raise errors.invalid(
            "A client authentication CA reference is required to specify a client authentication"
            " revocation list."
        )
    ciphers = given.get("tls_ciphers")
    if ciphers and not re.fullmatch(r"[A-Za-z0-9\-+!:@=_.]+", ciphers):
        raise errors.invalid(
            "Invalid characters in cipher string. Only alphanumeric, -, +, !, :, @, =, _, and ."
            " are allowed."
        )
    for some in (references, [each for each in (authority, revoked) if each]):
        if missing := [each for each in some if each not in certificates]:
            raise Answer(400, message=f"Could not retrieve certificate: {missing}")
    _check_versions(given.get("tls_versions"))


def check_pool(present: Json, given: Json, store: Store) -> None:
    """400 for certificates of CAs that cannot be had, or are none.

    :param present: a pool that there is; empty for a new one.
    :param given: its changes, or the new one.
    """
    authority = given.get(_OF_POOLS, present.get(_OF_POOLS))
    if authority is None or authority in store.certificates:
        return
    if authority not in store.references():
        raise Answer(400, message=f"Could not retrieve certificate: {[authority]}")
    try:
        x509.load_pem_x509_certificate(store.payload_of(authority))
    except ValueError as error:
        raise errors.invalid(
            "The client authentication CA certificate is invalid. It must be a valid x509 PEM"
            f" format certificate. Error: {error}"
        ) from error


def check_named(pool: Json, newest: int) -> None:
    """500 for a pool within a load balancer that leaves open what Octavia is to choose.

    :param newest: version of the API; 400 for what a later one brought.
    """
    for name, since in _CHOSEN_OF_POOLS.items() if pool.get("tls_enabled") else ():
        if newest < since and name in pool:
            raise errors.unknown("pool", name)
        if newest >= since and name not in pool:
            raise Answer(500, message=repr(name))


def with_choices(listener: Json) -> Json:
    """Octavia chooses where TLS is terminated."""
    if listener["protocol"] != PROTOCOL:
        return listener
    return listener | {name: listener[name] or value for name, value in _CHOSEN.items()}


def chosen_again(changes: Json) -> Json:
    """Octavia chooses again where null is sent."""
    return {name: _CHOSEN.get(name) if value is None else value for name, value in changes.items()}


def _check_versions(versions: list[str] | None) -> None:
    if wrong := [each for each in versions or () if each not in _VERSIONS]:
        raise errors.invalid(f"Invalid TLS versions: {', '.join(wrong)}")
