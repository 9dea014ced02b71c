"""``kuryr-k8s l7-router``: the L7 routers of the controller that leads."""

import argparse
from typing import Any

from kuryr_k8s.cli.local import LocalController
from kuryr_k8s.cli.table import table

Json = dict[str, Any]
DELETING = "that of [l7_router] is being deleted"
DELETED = (
    "the L7 router is being deleted. It is created again when the controller restarts, or when "
    "another one takes the lead, unless l7_router, ingress and ocp_route are no longer in "
    "[kubernetes] enabled_handlers"
)


def add_commands(
    parser: argparse.ArgumentParser,
    reading: argparse.ArgumentParser,
    changing: argparse.ArgumentParser,
) -> None:
    """Add the commands of ``l7-router`` to its parser.

    :param reading: the options of every command that changes nothing.
    :param changing: those of every command that changes something.
    """
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("show", parents=[reading], help="show where the L7 routers are")
    commands.add_parser(
        "delete",
        parents=[changing],
        help="delete the cluster's own L7 router: the one that [l7_router] describes",
    )


async def run(controller: LocalController, options: argparse.Namespace) -> tuple[Json, str]:
    """Run one command.

    :returns: the answer, and a text for people.
    :raises kuryr_k8s.cli.local.ControllerError: no controller answers, it stands by, or it
        refuses.
    """
    await controller.require_leader()
    if options.command == "delete":
        return await controller.post("/l7-router/delete", {}), DELETED
    answer = await controller.get("/l7-router")
    text = table(
        ("ROUTER", "ADDRESS", "ROUTES"),
        [
            (name, each["address"] or "unknown", each["routes"])
            for name, each in answer["routers"].items()
        ],
    )
    return answer, f"{text}\n{DELETING}" if answer["deleting"] else text
