"""Values of annotations: how each kind is read. Pure.

Each function returns the value, or raises a ValueError whose words follow the annotation's name
and its value: «is no number from 1 to 10».
"""

import ipaddress
import json
import re
import uuid
from collections.abc import Callable, Mapping
from typing import Any

_LONGEST = 365 * 24 * 3600 * 1000  # milliseconds: Octavia's limit of timeouts
_MOST = 2**31 - 1
LONGEST_NAME = 255  # characters, in Neutron and in Octavia
MOST_NETWORKS = 1000  # of a list: each reconcile reads all of them
LONGEST_CODES = 64  # characters, in Octavia
_HOSTNAME = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
)
# Kubernetes takes this for an address, and no hostname in a status, with leading zeros or without
_LIKE_ADDRESS = re.compile(r"[0-9]+(\.[0-9]+){3}")
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
# two slashes would begin the name of a host
_PATH = re.compile(r"/(?!/)([-A-Za-z0-9._~!$&'()*+,;=:@/?]|%[0-9A-Fa-f]{2})*")
_CODES = re.compile(r"[1-5][0-9]{2}((,[1-5][0-9]{2})*|-[1-5][0-9]{2})")
LONGEST_CIPHERS = 2048  # characters, in Octavia
MOST_LISTED = 100
# what has other characters would not be a line of a configuration any more
_CIPHERS = re.compile(r"[-A-Za-z0-9+!:@=_.]+")


def text(value: str) -> str:
    """Read anything but nothing."""
    if not value:
        raise ValueError("is empty")
    return value


def pattern(value: str) -> str:
    """Read a pattern, see :mod:`kuryr_k8s.model.subnet_patterns`, but no regular expression.

    Some take years to say that a name does not match, and nobody would be served meanwhile.
    """
    if value.removeprefix("!").startswith("~"):
        raise ValueError(
            "is a regular expression, which is for the operator to write: in a group "
            "[load_balancer_class:NAME] of kuryr.conf, to be named by the annotation "
            "loadbalancer.openstack.org/class"
        )
    if len(value) > LONGEST_NAME:
        raise ValueError(f"is longer than {LONGEST_NAME} characters, as no name is")
    return text(value)


def flag(value: str) -> bool:
    """Read true or false, in any case."""
    if value.lower() not in ("true", "false"):
        raise ValueError("is neither true nor false")
    return value.lower() == "true"


def one_of(values: Mapping[str, Any]) -> Callable[[str], Any]:
    """Return a function that reads one of the names; it returns what the name stands for."""

    def parse(value: str) -> Any:
        if value not in values:
            raise ValueError(f"is none of {', '.join(values)}")
        return values[value]

    return parse


def choice(*values: str) -> Callable[[str], str]:
    """Return a function that reads one of the values."""
    return one_of({value: value for value in values})


def number(lowest: int, highest: int) -> Callable[[str], int]:
    """Return a function that reads a number between the two."""

    def parse(value: str) -> int:
        if not re.fullmatch(r"-?[0-9]{1,12}", value) or not lowest <= int(value) <= highest:
            raise ValueError(f"is no number from {lowest} to {highest}")
        return int(value)

    return parse


def identifier(value: str) -> str:
    """Read the id of an object of OpenStack."""
    try:
        return str(uuid.UUID(value))
    except ValueError:
        raise ValueError("is no id (UUID)") from None


def address(value: str) -> str:
    """Read an IP address."""
    try:
        return str(ipaddress.ip_address(value))
    except ValueError:
        raise ValueError("is no IP address") from None


def mac_address(value: str) -> str:
    """Read the MAC address of an interface: of six bytes, and no group's."""
    mac = value.lower().replace("-", ":")
    if not _MAC.fullmatch(mac) or int(mac[:2], 16) & 1:
        raise ValueError("is no address of an interface")
    return mac


def hostname(value: str) -> str:
    """Read a DNS name."""
    if not _HOSTNAME.fullmatch(value) or _LIKE_ADDRESS.fullmatch(value):
        raise ValueError("is no DNS name")
    return value


def is_namespace(value: str) -> bool:
    """Return whether it can be the name of a namespace, or stands for all of them (``*``)."""
    return value == "*" or _NAMESPACE.fullmatch(value) is not None


def networks(value: str) -> tuple[str, ...]:
    """Read a list of networks.

    :returns: empty if each address family that is named is open to everybody. A family that is
        open does not open the other one.
    :raises ValueError: something in the list is no network, or they are too many.
    """
    if value.count(",") >= MOST_NETWORKS:
        raise ValueError(f"has more than {MOST_NETWORKS} networks")
    try:
        found = {ipaddress.ip_network(text.strip(), strict=False) for text in value.split(",")}
    except ValueError:
        raise ValueError("is no list of networks (10.0.0.0/8,192.0.2.0/24)") from None
    families = {network.version for network in found}
    opened = {network.version for network in found if network.prefixlen == 0}
    return () if families == opened else tuple(sorted(map(str, found)))


def path(value: str) -> str:
    """Read a path, perhaps with a query."""
    if len(value) > LONGEST_NAME or not _PATH.fullmatch(value):
        raise ValueError(f"is no path of a URL of at most {LONGEST_NAME} characters (/healthz)")
    return value


def codes(value: str) -> str:
    """Read HTTP status codes as Octavia writes them: ``200``, ``200,202`` or ``200-204``."""
    codes = re.sub(r"\s*,\s*", ",", value)
    first, _, last = codes.partition("-")
    if len(codes) > LONGEST_CODES or not _CODES.fullmatch(codes) or (last and last < first):
        raise ValueError(
            f"is neither a code (200), nor a list (200,202) of at most {LONGEST_CODES} "
            "characters, nor a range (200-204)"
        )
    return codes


def listed(
    read: Callable[[str], str], most: int = MOST_LISTED
) -> Callable[[str], tuple[str, ...]]:
    """Return a function that reads a list, ``a,b``, in which the order does not matter."""

    def parse(value: str) -> tuple[str, ...]:
        if value.count(",") >= most:
            raise ValueError(f"has more than {most} values")
        return tuple(sorted({read(each.strip()) for each in value.split(",")}))

    return parse


def container(value: str) -> str:
    """Read a reference of a container of certificates."""
    if not re.fullmatch(rf"\S{{1,{LONGEST_NAME}}}", value):
        raise ValueError(f"is no reference of a container of at most {LONGEST_NAME} characters")
    return value


def ciphers(value: str) -> str:
    """Read a list of ciphers in the format of OpenSSL."""
    if len(value) > LONGEST_CIPHERS or not _CIPHERS.fullmatch(value):
        raise ValueError(
            f"is no list of ciphers of at most {LONGEST_CIPHERS} characters (ECDHE+AESGCM:!aNULL)"
        )
    return value


def json_of(value: str) -> Any:
    """Read JSON."""
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise ValueError("is no JSON") from None


def json_list(value: str) -> list[Any]:
    """Read a list in JSON."""
    found = json_of(value)
    if not isinstance(found, list):
        raise ValueError("is no list")  # noqa: TRY004 - of the user's text
    return found


milliseconds = number(0, _LONGEST)
seconds = number(1, _MOST)
retries = number(1, 10)
connections = number(-1, _MOST)
