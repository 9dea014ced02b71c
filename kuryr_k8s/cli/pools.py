"""``kuryr-k8s pools``: the pools of ports of the controller that leads."""

import argparse
from typing import Any
from urllib.parse import quote

from kuryr_k8s import errors
from kuryr_k8s.cli.local import LocalController
from kuryr_k8s.cli.table import table
from kuryr_k8s.model.pool_requests import NUMBERS

Json = dict[str, Any]
LISTED = ("available", "parked", "in_use", "target", "waiting")
SHORT = 8  # characters of an id that stands in for a name


def add_commands(
    parser: argparse.ArgumentParser,
    reading: argparse.ArgumentParser,
    changing: argparse.ArgumentParser,
) -> None:
    """Add the commands of ``pools`` to its parser.

    :param reading: the options of every command that changes nothing.
    :param changing: those of every command that changes something.
    """
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("list", parents=[reading], help="list all pools")
    show = commands.add_parser("show", parents=[reading], help="show one pool and its ports")
    show.add_argument("id", metavar="ID")
    populate = commands.add_parser("populate", parents=[changing], help="create ports in advance")
    which = populate.add_mutually_exclusive_group(required=True)
    which.add_argument("id", metavar="ID", nargs="?", help="an existing pool")
    which.add_argument("--node", help="the pool of a node, which need not exist yet")
    populate.add_argument(
        "--namespace", help="with --node: for Pods of this namespace (default: default)"
    )
    populate.add_argument(
        "--count", type=_positive, required=True, metavar="N", help="number of ports"
    )
    free = commands.add_parser("free", parents=[changing], help="delete available ports")
    free.add_argument("id", metavar="ID")
    free.add_argument(
        "--count", type=_positive, metavar="N", help="number of ports (default: all)"
    )


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


async def run(controller: LocalController, options: argparse.Namespace) -> tuple[Json, str]:
    """Run one command.

    :returns: the answer, and a text for people.
    :raises kuryr_k8s.cli.local.ControllerError: no controller answers, it stands by, or it
        refuses.
    """
    if options.command == "populate" and options.namespace and not options.node:
        raise errors.ConfigError("--namespace needs --node")
    await controller.require_leader()
    match options.command:
        case "list":
            answer = await controller.get("/pools")
            return answer, _table(answer["pools"])
        case "show":
            answer = await controller.get(_path(options.id))
            return answer, _shown(answer)
        case "populate":
            answer = await _populate(controller, options)
            pool = options.id or answer["id"]
            return answer, f"pool {pool}: {answer['ports']} ports are being created"
        case _:
            body = {"count": options.count}
            answer = await controller.post(f"{_path(options.id)}/free", body)
            return answer, f"pool {options.id}: {answer['ports']} ports are being deleted"


async def _populate(controller: LocalController, options: argparse.Namespace) -> Json:
    if options.id:
        return await controller.post(f"{_path(options.id)}/populate", {"count": options.count})
    wanted = {"node": options.node, "namespace": options.namespace or "default"}
    return await controller.post("/pools", wanted | {"count": options.count})


def _path(pool_id: str) -> str:
    return f"/pools/{quote(pool_id, safe='')}"


def _table(pools: list[Json]) -> str:
    if not pools:
        return "there is no pool"
    head = ("ID", "NODE", "NETWORK", "PROJECT", *(name.upper() for name in LISTED))
    rows = [
        (
            pool["id"],
            pool["node"] or pool["place"],
            pool["network_name"] or pool["network_id"][:SHORT],
            pool["project_id"][:SHORT],
            *(pool[name] for name in LISTED),
        )
        for pool in pools
    ]
    return table(head, rows)


def _shown(pool: Json) -> str:
    lines = [
        f"{name:<16} {value}"
        for name, value in (
            ("id", pool["id"]),
            ("node", pool["node"] or "unknown"),
            ("host or trunk", pool["place"]),
            ("project", pool["project_id"]),
            ("network", f"{pool['network_id']} {pool['network_name']}".rstrip()),
            ("subnets", ", ".join(pool["subnet_ids"])),
            ("security groups", ", ".join(pool["security_groups"])),
            *((name.replace("_", " "), pool[name]) for name in NUMBERS),
        )
    ]
    rows = [
        (port["id"], port["mac"], ", ".join(port["addresses"]), port["state"])
        for port in pool["ports"]
    ]
    return "\n".join([*lines, "", table(("PORT", "MAC", "ADDRESSES", "STATE"), rows)])
