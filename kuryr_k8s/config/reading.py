"""The configuration files, read and checked."""

from collections.abc import Sequence
from pathlib import Path

from oslo_config import cfg
from oslo_log import log

from kuryr_k8s import errors
from kuryr_k8s.config import octavia
from kuryr_k8s.config.groups import GROUPS

DEFAULT_FILE = Path("/etc/kuryr/kuryr.conf")


def read(arguments: Sequence[str], prog: str) -> cfg.ConfigOpts:
    """Read the files that ``--config-file`` names (default /etc/kuryr/kuryr.conf).

    :raises errors.ConfigError: A file is missing or unreadable, or an option is wrong.
    """
    conf = cfg.ConfigOpts()
    log.register_options(conf)
    for group, options in GROUPS.items():
        conf.register_opts(options, group=group)
    try:
        conf(
            list(arguments),
            project="kuryr",
            prog=prog,
            default_config_files=[str(DEFAULT_FILE)] if DEFAULT_FILE.exists() else [],
        )
        for group in (*GROUPS, *_register_classes(conf)):
            dict(conf[group])  # reads every value, and so checks it
    except cfg.Error as error:
        raise errors.ConfigError(str(error)) from error
    return conf


def _register_classes(conf: cfg.ConfigOpts) -> list[str]:
    """Register the groups of load balancer classes that the files contain.

    :returns: The names of the groups in lower case, since oslo.config ignores case.
    """
    sections = [name.lower() for name in conf.list_all_sections()]
    groups = [name for name in sections if name.startswith(octavia.CLASS_PREFIX)]
    for group in groups:
        conf.register_opts(octavia.load_balancer_class, group=group)
    return groups


def load(arguments: Sequence[str], prog: str) -> cfg.ConfigOpts:
    """Read the options as :func:`read` does, and set up logging.

    :raises errors.ConfigError: A file is missing or unreadable, or an option is wrong.
    """
    conf = read(arguments, prog)
    log.set_defaults(default_log_levels=[*log.get_default_log_levels(), "aiohttp.access=WARN"])
    log.setup(conf, prog)
    return conf
