"""The files that the daemon installs on the node: kuryr-cni and the CNI configuration."""

import errno
import json
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from oslo_config import cfg

from kuryr_k8s import errors

LOG = logging.getLogger(__name__)
NAME = "10-kuryr.conflist"
SOCKET = "/run/kuryr/cni.sock"  # as in kuryr-cni.c
SPOOL = "/var/lib/kuryr/spool"
# Errors that no change of the configuration mends, but another start may
PASSING = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ENOMEM, errno.ENFILE)


def prepare(conf: cfg.ConfigOpts) -> Callable[[], None]:
    """Install the plugin where the options want it, and read the configuration's template.

    Where Pods are selected by annotations, the configuration is another plugin's matter.

    :returns: a function that installs the configuration, by which the runtime finds the plugin.
    :raises errors.ConfigError: a file cannot be written, or the template cannot be read.
    :raises errors.KuryrError: the disk is full or broken; the program may be started again.
    """
    options = conf.cni_daemon
    template, directory = options.cni_conf_template, options.cni_conf_dir
    with _translated():
        if options.cni_bin_dir:
            install_plugin(Path(options.cni_bin_dir))
        if not directory:
            return _install_nothing
        if conf.kubernetes.pod_selection == "annotated":
            _warn_of(Path(directory) / NAME)
            return _install_nothing
        text = (
            Path(template).read_text() if template else render(options.socket, options.spool_dir)
        )
        Path(directory).mkdir(parents=True, exist_ok=True)

    def announce() -> None:
        with _translated():
            install_configuration(Path(directory), text)

    return announce


def _install_nothing() -> None:
    """Leave the configuration to others."""


def _warn_of(configuration: Path) -> None:
    if configuration.exists():
        LOG.warning(
            "[kubernetes] pod_selection is annotated, and there is %s: remove it if an earlier "
            "daemon has installed it, and the runtime calls kuryr-cni for all Pods by it",
            configuration,
        )


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        kind = errors.KuryrError if error.errno in PASSING else errors.ConfigError
        raise kind(f"cannot install kuryr-cni: {error}") from error


def render(socket: str = SOCKET, spool: str = SPOOL) -> str:
    """Return the configuration's text: kuryr-cni, then portmap for hostPort.

    By its capability, kuryr-cni learns of which Pods a chained plugin limits the bandwidth.

    The text always contains the paths: kuryr-cni takes the first mention of each, and so none
    that comes from a Pod.
    """
    kuryr: dict[str, Any] = {
        "type": "kuryr-cni",
        "capabilities": {"bandwidth": True},
        "kuryr_socket": socket,
        "kuryr_spool": spool,
    }
    portmap = {
        "type": "portmap",
        "capabilities": {"portMappings": True},
        "snat": True,
        "masqAll": True,
    }
    conflist = {
        "cniVersion": "1.0.0",
        "cniVersions": ["1.0.0", "1.1.0"],
        "name": "kuryr",
        "plugins": [kuryr, portmap],
    }
    return json.dumps(conflist, indent=2) + "\n"


def install_plugin(directory: Path) -> None:
    """Copy kuryr-cni to the directory of the runtime's plugins; it needs nothing else there."""
    program = Path(__file__).with_name("kuryr-cni")
    _write(directory / program.name, program.read_bytes(), 0o755)


def install_configuration(directory: Path, text: str) -> None:
    """Write the configuration; from now on the runtime sends requests."""
    _write(directory / NAME, text.encode(), 0o644)


def _write(path: Path, content: bytes, mode: int) -> None:
    """Write a file whole or not at all, unless it is the same already."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_file() and path.read_bytes() == content and path.stat().st_mode & 0o777 == mode:
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fchmod(file.fileno(), mode)
        os.fsync(file.fileno())
    temporary.rename(path)
