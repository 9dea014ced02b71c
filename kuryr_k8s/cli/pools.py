"""The command ``kuryr-k8s pools``, which asks the controller that leads about its pools of ports.

These JSON documents are exchanged::

    GET  /pools                 {"pools": [POOL, ...]}
    GET  /pools/ID              POOL + {"ports": [{"id", "mac", "addresses", "state"}, ...]}
    POST /pools/ID/populate     {"count": N} -> {"ports": the number requested}
    POST /pools                 {"node", "namespace", "count"} -> {"id", "ports"}
    POST /pools/ID/free         {"count": N or null} -> {"ports": the number to be deleted}

POOL is ``{"id", "project_id", "place", "network_id", "subnet_ids", "security_groups"}`` and the
numbers of :data:`NUMBERS`. An error is ``{"error": "..."}`` with a status of 400 or more.
"""

import argparse
from typing import Any
from urllib.parse import quote

from kuryr_k8s import errors
from kuryr_k8s.cli.local import LocalController
from kuryr_k8s.cli.table import table

Json = dict[str, Any]
NUMBERS = ("available", "parked", "in_use", "creating", "returning", "target", "waiting")


def add_commands(parser: argparse.ArgumentParser, everywhere: argparse.ArgumentParser) -> None:
    """Add the commands of ``pools`` to the parser, with the options of all commands."""
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("list", parents=[everywhere], help="all pools")
    show = commands.add_parser("show", parents=[everywhere], help="one pool and its ports")
    show.add_argument("id", metavar="ID")
    populate = commands.add_parser("populate", parents=[everywhere], help="make ports")
    which = populate.add_mutually_exclusive_group(required=True)
    which.add_argument("id", metavar="ID", nargs="?", help="a pool that there is")
    which.add_argument("--node", help="the pool of a node, whether it is there or not yet")
    populate.add_argument(
        "--namespace", help="with --node: for this namespace's Pods (default: default)"
    )
    populate.add_argument(
        "--count", type=_positive, required=True, metavar="N", help="how many ports"
    )
    free = commands.add_parser("free", parents=[everywhere], help="delete available ports")
    free.add_argument("id", metavar="ID")
    free.add_argument("--count", type=_positive, metavar="N", help="so many; default: all")


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


async def run(controller: LocalController, options: argparse.Namespace) -> tuple[Json, str]:
    """Run one command.

    :returns: The answer as JSON and as text.
    :raises kuryr_k8s.cli.local.ControllerError: There is no controller, it stands by, or it
        refuses.
    """
    if options.command == "populate" and options.namespace and not options.node:
        raise errors.ConfigError("--namespace goes with --node")
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
            return answer, f"pool {pool}: {answer['ports']} ports to come"
        case _:
            body = {"count": options.count}
            answer = await controller.post(f"{_path(options.id)}/free", body)
            return answer, f"pool {options.id}: {answer['ports']} ports go"


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
    head = ("ID", "PLACE", "PROJECT", "NETWORK", *(name.upper() for name in NUMBERS))
    rows = [
        (
            *(pool[name] for name in ("id", "place", "project_id", "network_id")),
            *(pool[name] for name in NUMBERS),
        )
        for pool in pools
    ]
    return table(head, rows)


def _shown(pool: Json) -> str:
    lines = [
        f"{name:<16} {value}"
        for name, value in (
            ("id", pool["id"]),
            ("place", pool["place"]),
            ("project", pool["project_id"]),
            ("network", pool["network_id"]),
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
