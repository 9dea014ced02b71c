"""``kuryr-k8s``: controllers, pools of ports and the L7 router, for people and scripts.

Exit codes: 0 success (for ``status``: a controller leads), 1 failure, 2 wrong configuration or
usage.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from oslo_config import cfg

from kuryr_k8s import config, errors
from kuryr_k8s.cli import l7_router, pools, status
from kuryr_k8s.cli.local import LocalController, socket_of, url_of

PROGRAM = "kuryr-k8s"


def main() -> None:
    """Run ``kuryr-k8s``."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command; an error is one line on standard error.

    :returns: the exit code.
    """
    options = _parser().parse_args(arguments)
    try:
        answer, text, code = asyncio.run(_answer(options))
    except errors.KuryrError as error:
        print(f"{PROGRAM}: {' '.join(str(error).split())}", file=sys.stderr)
        return 2 if isinstance(error, errors.ConfigError) else 1
    print(json.dumps(answer, indent=2) if options.json else text)
    return code


async def _answer(options: argparse.Namespace) -> tuple[Any, str, int]:
    """Run the command and return its answer as JSON and as text, and the exit code."""
    address, conf = _target(options)
    async with LocalController(address) as controller:
        if options.what == "status":
            report = await status.report(controller, conf)
            return report, status.text(report), 0 if report["leader"] else 1
        run_command = l7_router.run if options.what == "l7-router" else pools.run
        answer, text = await run_command(controller, options)
        return answer, text, 0


def _target(options: argparse.Namespace) -> tuple[str | Path, cfg.ConfigOpts | None]:
    """Return the address of the controller, and the configuration that tells it, if any does."""
    if options.address:
        return options.address, None
    conf = config.read([f"--config-file={path}" for path in options.config_file], PROGRAM)
    return socket_of(conf) if options.changes else url_of(conf), conf


def _parser() -> argparse.ArgumentParser:
    everywhere = argparse.ArgumentParser(add_help=False)
    everywhere.add_argument(
        "--config-file",
        action="append",
        default=[],
        metavar="FILE",
        help="configuration of this host's controller (default: /etc/kuryr/kuryr.conf); may be "
        "repeated",
    )
    everywhere.add_argument("--json", action="store_true", help="print JSON")
    reading = argparse.ArgumentParser(add_help=False, parents=[everywhere])
    reading.add_argument(
        "--url",
        dest="address",
        help="address where the controller listens, instead of the one in kuryr.conf",
    )
    reading.set_defaults(changes=False)
    changing = argparse.ArgumentParser(add_help=False, parents=[everywhere])
    changing.add_argument(
        "--socket",
        dest="address",
        type=Path,
        help="path of the controller's socket, instead of the one in kuryr.conf",
    )
    changing.set_defaults(changes=True)
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Show and change the state of the kuryr-k8s-controller of this host.",
    )
    commands = parser.add_subparsers(dest="what", required=True, metavar="COMMAND")
    commands.add_parser(
        "status", parents=[reading], help="show which controller leads, and its state"
    )
    managed = commands.add_parser("pools", help="show and change the pools of ports")
    pools.add_commands(managed, reading, changing)
    routing = commands.add_parser(
        "l7-router", help="show the L7 routers, delete the cluster's own one"
    )
    l7_router.add_commands(routing, reading, changing)
    return parser
