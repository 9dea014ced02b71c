"""CNI requests (SPEC 1.1, sections 2 and 3), read and validated without I/O."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

Json = dict[str, Any]

# SPEC, «Error», well-known codes
INCOMPATIBLE = 1
BAD_ENVIRONMENT = 4
IO_FAILURE = 5
DECODE_FAILURE = 6
BAD_CONFIG = 7
BAD_NAMESPACE = 8  # in the reference implementation
TRY_LATER = 11
NOT_AVAILABLE = 50
# 100 and above are a plugin's own
CHECK_FAILED = 101
INTERNAL = 999
# The exit code by which the daemon has kuryr-cni put a DEL off, as in kuryr-cni.c (EX_TEMPFAIL)
PUT_OFF = 75

VERSIONS = ("0.3.1", "0.4.0", "1.0.0", "1.1.0")
LATEST = VERSIONS[-1]
# The first version of the configuration in which a runtime may use a command
SINCE = {"CHECK": "0.4.0", "GC": "1.1.0", "STATUS": "1.1.0"}
# The parameters that each command needs besides CNI_COMMAND. CNI_PATH may be missing, since we
# call no other plugin.
REQUIRED = {
    "ADD": ("CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"),
    "DEL": ("CNI_CONTAINERID", "CNI_IFNAME"),
    "CHECK": ("CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"),
    "GC": (),
    "STATUS": (),
}
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.\-]*", re.ASCII)


def _is_ifname(value: str) -> bool:
    """Return whether Linux accepts a name for an interface."""
    return len(value) <= 15 and value not in (".", "..") and not re.search(r"[/:\s]", value)


VALID: Mapping[str, Callable[[str], bool]] = {
    "CNI_CONTAINERID": lambda value: bool(_NAME.fullmatch(value)),
    "CNI_IFNAME": _is_ifname,
    "CNI_NETNS": lambda value: "\0" not in value,
}


class CNIError(Exception):
    """A request that failed, as it is reported to the runtime (SPEC, «Error»)."""

    def __init__(self, code: int, message: str, details: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = details

    def to_json(self, version: str) -> Json:
        """Return the error in a version of SPEC."""
        answer: Json = {"cniVersion": version, "code": self.code, "msg": self.message}
        return answer | ({"details": self.details} if self.details else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached:
    """An attachment as runtimes name it."""

    container_id: str
    ifname: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The network configuration.

    :param valid: the attachments that the runtime considers valid; None if it lists none.
    :param network: the NetworkAttachmentDefinition, as namespace/name, that Multus calls for;
        empty: the default network.
    :param limited: whether the Pod's bandwidth is limited (the capability ``bandwidth``).
    """

    version: str
    name: str = ""
    previous: Json | None = None
    valid: frozenset[Attached] | None = None
    network: str = ""
    limited: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A call of the plugin. Parameters that a command does not need may be empty."""

    command: str
    container_id: str = ""
    ifname: str = ""
    netns: str = ""
    args: Mapping[str, str] = field(default_factory=dict)
    config: Config

    @property
    def pod(self) -> str:
        """Return namespace and name of the Pod, for people."""
        namespace = self.args.get("K8S_POD_NAMESPACE", "?")
        return f"{namespace}/{self.args.get('K8S_POD_NAME', '?')}"

    @property
    def pod_uid(self) -> str:
        """Return the uid of the Pod, empty if the runtime did not state it."""
        return self.args.get("K8S_POD_UID", "")

    def require_pod(self) -> None:
        """Check that the runtime stated which Pod this is.

        :raises CNIError: 4, it did not.
        """
        names = ("K8S_POD_NAMESPACE", "K8S_POD_NAME", "K8S_POD_UID")
        missing = [name for name in names if not self.args.get(name)]
        if missing:
            raise CNIError(BAD_ENVIRONMENT, f"CNI_ARGS lacks {', '.join(missing)}")

    @classmethod
    def read(cls, raw: bytes) -> Self:
        """Read what kuryr-cni sends.

        :raises CNIError: 1, 4, 6 or 7, as SPEC says. A DEL is only checked for what it needs: it
            must succeed.
        """
        environ, text = split(raw)
        command = environ.get("CNI_COMMAND", "")
        if command not in REQUIRED:
            raise CNIError(BAD_ENVIRONMENT, f"CNI_COMMAND is {command!r}: unknown")
        _check_environment(command, environ)
        return cls(
            command=command,
            container_id=environ.get("CNI_CONTAINERID", ""),
            ifname=environ.get("CNI_IFNAME", ""),
            netns=environ.get("CNI_NETNS", ""),
            args=read_args(environ.get("CNI_ARGS", "")),
            config=read_config(command, text),
        )


def split(raw: bytes) -> tuple[dict[str, str], bytes]:
    """Split a request into the environment and standard input.

    :raises CNIError: 6, it is not a request.
    """
    if raw.startswith(b"\0"):  # without any variable
        return {}, raw[1:]
    head, end, text = raw.partition(b"\0\0")
    if not end:
        raise CNIError(DECODE_FAILURE, "the request has no end of its environment")
    entries = (entry.partition("=") for entry in head.decode(errors="replace").split("\0"))
    return {name: value for name, _, value in entries}, text


def version_of(raw: bytes) -> str:
    """Return the version in which to answer a request that may be unreadable."""
    found = re.search(rb'"cniVersion"\s*:\s*"([0-9.]+)"', raw)
    version = found[1].decode() if found else LATEST
    return version if version in VERSIONS else LATEST


def read_args(text: str) -> dict[str, str]:
    """Read ``CNI_ARGS``: pairs like ``K8S_POD_NAME=web;K8S_POD_NAMESPACE=default``."""
    pairs = (part.partition("=") for part in text.split(";") if part)
    return {name.strip(): value.strip() for name, _, value in pairs}


def read_config(command: str, text: bytes) -> Config:
    """Read standard input as a configuration.

    :raises CNIError: 1, 6 or 7.
    """
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CNIError(
            DECODE_FAILURE, f"the network configuration is not JSON: {error}"
        ) from error
    if not isinstance(config, dict):
        raise CNIError(DECODE_FAILURE, "the network configuration is not a JSON object")
    version = config.get("cniVersion", "0.1.0")
    if version not in VERSIONS:
        raise CNIError(
            INCOMPATIBLE,
            f"cniVersion is {version!r}: kuryr-cni knows {', '.join(VERSIONS)}",
        )
    if version < SINCE.get(command, ""):
        raise CNIError(INCOMPATIBLE, f"cniVersion {version} has no command {command}")
    name = config.get("name")
    if command != "DEL" and not (isinstance(name, str) and _NAME.fullmatch(name)):
        raise CNIError(BAD_CONFIG, f"name is {name!r}: not a valid network name")
    previous = config.get("prevResult")
    if previous is not None and not isinstance(previous, dict):
        raise CNIError(BAD_CONFIG, "prevResult is not a JSON object")
    capabilities = config.get("runtimeConfig")
    return Config(
        version=version,
        name=str(name or ""),
        previous=previous,
        valid=_read_valid(config),
        network=str(config.get("netAttachDefName") or ""),
        limited=isinstance(capabilities, dict) and bool(capabilities.get("bandwidth")),
    )


def _check_environment(command: str, environ: Mapping[str, str]) -> None:
    missing = [name for name in REQUIRED[command] if not environ.get(name)]
    if missing:
        raise CNIError(BAD_ENVIRONMENT, f"{command} needs {', '.join(missing)}")
    wrong = [
        f"{name}={environ[name]!r}" for name in REQUIRED[command] if not VALID[name](environ[name])
    ]
    if wrong:
        raise CNIError(BAD_ENVIRONMENT, f"not valid: {', '.join(wrong)}")


def _read_valid(config: Json) -> frozenset[Attached] | None:
    """Read the list of valid attachments; libcni also sends an earlier spelling of the key."""
    listed = config.get("cni.dev/valid-attachments", config.get("cni.dev/attachments"))
    if listed is None:
        return None
    try:
        return frozenset(
            Attached(container_id=str(item["containerID"]), ifname=str(item["ifname"]))
            for item in listed
        )
    except (TypeError, KeyError) as error:
        message = "cni.dev/valid-attachments is not a list of containerID and ifname"
        raise CNIError(BAD_CONFIG, message) from error
