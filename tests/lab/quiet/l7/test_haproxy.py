"""A real haproxy, configured by Octavia's own template, serves requests as Kubernetes says."""

import asyncio
import contextlib
import dataclasses
import functools
import json
import random
import socket
import subprocess

import pytest

from kuryr_k8s.drivers.l7.plan import plan
from kuryr_k8s.model.routes import Forward, Redirect, Reject
from lab import facts
from lab.paths import REPOSITORY
from lab.process import run, wait_until
from tests.unit.drivers.l7.test_plan import (
    ASKED,
    HOSTS,
    HOSTS_ASKED,
    PATHS,
    below_a_wildcard,
    route,
    wanted,
)

pytestmark = [pytest.mark.lab_only, pytest.mark.product("router"), pytest.mark.complete]
SETS = 60  # of routes, each a listener; and one of many hosts
FIRST_PORT = 8000
POOLS = ("one", "two", "three")
ACTIONS = (
    *(Forward(name) for name in POOLS),
    Redirect("https://one", 302),
    Redirect("https://two", 308),
    Reject(),
)
BELOW_A_WILDCARD = [
    *(f"shop-{number:04}.apps.example.com" for number in range(0, 200, 9)),
    *("SHOP-0199.Apps.example.com:80", "shop-0200.apps.example.com", "shop-0001.example.com"),
    *("shop-000.apps.example.com", "xshop-0001.apps.example.com", "shop-0001xapps.example.com"),
]


def drawn(seed):
    """Sets of routes, as the property test has them."""
    chance = random.Random(seed)
    for _ in range(SETS):
        count = chance.randrange(1, 13)
        yield [
            route(
                f"route-{number}",
                chance.choice(HOSTS),
                chance.choice(["Exact", "Prefix", "Prefix"]),
                chance.choice(PATHS),
                chance.choice(ACTIONS),
                chance.choice(["2026-01-01", "2026-01-02"]),
            )
            for number in range(count)
        ]


def listener(made, port):
    """A listener as Octavia has it."""
    policies = [
        {
            "action": policy.action,
            "pool": policy.redirect_pool,
            "prefix": policy.redirect_prefix,
            "code": policy.redirect_http_code,
            "rules": [dataclasses.asdict(rule) for rule in policy.rules],
        }
        for policy in made.policies
    ]
    return {"port": port, "default_pool": None, "policies": policies}


def rendered(asked):
    """What Octavia's template makes of the listeners."""
    program = [f"{facts.load().openstack_venv}/bin/python", "tests/lab/quiet/l7/octavia_config.py"]
    return run(program, cwd=REPOSITORY, stdin=json.dumps(asked))


@contextlib.asynccontextmanager
async def pools():
    """Servers that answer with their names; their ports."""
    serving = set()

    async def answer(name, reader, writer):
        serving.add(asyncio.current_task())
        body = f"HTTP/1.1 200 OK\r\nContent-Length: {len(name)}\r\n\r\n{name}".encode()
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            await closed(writer)

    async with contextlib.AsyncExitStack() as stack:
        ports = {}
        for name in POOLS:
            server = await asyncio.start_server(functools.partial(answer, name), "127.0.0.1", 0)
            await stack.enter_async_context(server)
            ports[name] = server.sockets[0].getsockname()[1]
        yield ports
        await asyncio.wait(serving)  # haproxy has gone, and its connections with it


@contextlib.contextmanager
def haproxy(config, path, address, port):
    """Run haproxy until the test is over; it listens at the address and the port."""
    path.write_text(config)
    run(["haproxy", "-c", "-f", str(path)])
    with subprocess.Popen(
        ["haproxy", "-db", "-f", str(path)], stderr=subprocess.DEVNULL
    ) as process:
        try:
            assert wait_until(lambda: is_open(address, port), 20, 0.05)
            yield
        finally:
            process.kill()


def is_open(address, port):
    with socket.socket() as probe:
        return probe.connect_ex((address, port)) == 0


async def closed(writer):
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def answers(address, port, requests):
    """What the listener answers to each request: a pool's name, a redirect, or a status."""
    found = []
    for host, path in requests:
        reader, writer = await asyncio.open_connection(address, port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
        await closed(writer)
        lines = head.split("\r\n")
        status = int(lines[0].split()[1])
        headers = {
            name.lower(): value for name, _, value in (each.partition(": ") for each in lines[1:])
        }
        found.append((status, headers.get("location") or (body if status == 200 else "")))
    return found


def expected(routes, host, path):
    match wanted(routes, host, path):
        case Forward(pool):
            return (200, pool)
        case Redirect(prefix, code):
            return (code, f"{prefix}{path}")
        case Reject():
            return (403, "")
        case _:
            return (503, "")


@pytest.mark.timeout(600)
async def test_haproxy_serves_each_request_by_the_most_specific_route(tmp_path):
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    sets = [*drawn(seed), below_a_wildcard(200)]
    # an address of this run's own, on which nobody else has a port
    address = f"127.{random.randrange(8, 255)}.{random.randrange(255)}.{random.randrange(1, 255)}"
    ports = range(FIRST_PORT, FIRST_PORT + len(sets))
    requests = [(host, path) for host in HOSTS_ASKED for path in ASKED]
    requests += [(host, "/") for host in BELOW_A_WILDCARD]
    async with pools() as pool_ports:
        asked = {
            "address": address,
            "socket": str(tmp_path / "stats.sock"),
            "pools": pool_ports,
            "listeners": [
                listener(plan(routes), port) for routes, port in zip(sets, ports, strict=True)
            ],
        }
        config = await asyncio.to_thread(rendered, asked)
        with haproxy(config, tmp_path / "haproxy.cfg", address, ports[-1]):
            async with asyncio.TaskGroup() as group:
                asking = [group.create_task(answers(address, port, requests)) for port in ports]
            found = [task.result() for task in asking]
    differing = [
        (routes, request, answer, expected(routes, *request))
        for routes, of_set in zip(sets, found, strict=True)
        for request, answer in zip(requests, of_set, strict=True)
        if answer != expected(routes, *request)
    ]
    print(f"{len(sets) * len(requests)} requests, {len(differing)} differ")
    assert not differing, differing[:3]
