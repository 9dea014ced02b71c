"""Every test here that asks for `side` runs on the fake and, if there is a lab, on the real one.

--real=auto (default) runs the real half if the lab is up, --real=yes insists on it, --real=no
leaves it out, --real=only leaves out all others. Where the option cannot be given, the environment
variable CONTRACT_REAL can.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import openstack
import pytest

from kuryr_k8s.cloud.connect import ServiceAdapter
from kuryr_k8s.cloud.octavia.api import Octavia as Client
from kuryr_k8s.cloud.transport import Transport
from tests.samples import sample_modules

from .balancers import Octavia, vip_subnet
from .sides import Side, fake_side, real_side

_HERE = Path(__file__).parent
_REAL_SAMPLE = 8  # make test runs one in so many cases of a module on the real cloud
# openstacksdk warns, in its own code, of arguments that it gives itself.
_SDK_ABOUT_ITSELF = "ignore::PendingDeprecationWarning"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--real",
        choices=("auto", "yes", "no", "only"),
        help="contract tests on the lab's real Neutron",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    mine = [item for item in items if _HERE in item.path.parents]
    for item in mine:
        item.add_marker("contract")
        item.add_marker(pytest.mark.timeout(1200))  # each step has a limit of its own
        item.add_marker(pytest.mark.filterwarnings(_SDK_ABOUT_ITSELF))
    real = [item for item in mine if _side_of(item) == "real"]
    sample_modules(real, _REAL_SAMPLE)  # a real cloud takes seconds where the fake takes none
    wanted = _wanted(config)
    left_out = [item for item in mine if item not in real] if wanted == "only" else []
    if real and (wanted == "no" or _find_lab() is None):
        if wanted in ("yes", "only"):
            raise pytest.UsageError(f"--real={wanted}, but no lab is up (python -m lab up)")
        left_out = real
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session")
def lab_connections() -> Iterator[tuple[Any, dict[str, Any]]]:
    """The facts of the lab, and a connection for each of its users."""
    lab = _find_lab()
    os.environ["OS_CLIENT_CONFIG_FILE"] = lab.cloud.clouds_yaml
    connections = {name: openstack.connect(cloud=name) for name in ("lab", "kuryr", "tenant2")}
    yield lab, connections
    for connection in connections.values():
        connection.close()


@pytest.fixture(params=["fake", "real"])
async def side(request: pytest.FixtureRequest) -> AsyncIterator[Side]:
    """One of the two clouds."""
    if request.param == "fake":
        async with fake_side() as side:
            yield side
        return
    async with real_side(*request.getfixturevalue("lab_connections")) as side:
        yield side


@pytest.fixture
async def pods(side: Side) -> dict[str, Any]:
    """A network of the cluster's project with both families."""
    return await side.network("10.213.0.0/24", "fd00:213::/64")


@pytest.fixture
async def octavia(side: Side) -> AsyncIterator[Octavia]:
    """Octavia as the cluster's user; the load balancers that it makes are removed."""
    user = Octavia(side.kuryr.connection, side.kuryr.project_id, [])
    yield user
    await user.clean()


@pytest.fixture
async def client(side: Side) -> AsyncIterator[Client]:
    """Our own client of Octavia, as the cluster's user."""
    transport = Transport(ServiceAdapter(side.kuryr.connection, "load_balancer"), limit=4)
    yield Client(transport)
    transport.close()


@pytest.fixture(params=["ovn", "amphora"])
def provider(request: pytest.FixtureRequest) -> str:
    """Each of Octavia's providers."""
    name: str = request.param
    return name


@pytest.fixture
def admin(side: Side) -> Octavia:
    """Octavia as the admin."""
    return Octavia(side.admin.connection, side.admin.project_id, [])


@pytest.fixture
async def stranger(side: Side) -> AsyncIterator[Octavia]:
    """Octavia as a user of the other project, which only one case at a time uses: some cases set
    its quotas. The kernel drops the lock of a process that was killed."""
    project_id = side.stranger.project_id
    with (Path(tempfile.gettempdir()) / f"load-balancers-of-{project_id}.lock").open("w") as lock:
        await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_EX)
        yield Octavia(side.stranger.connection, project_id, [])


@pytest.fixture
async def subnet(side: Side) -> str:
    """A subnet for VIPs in a network of the cluster's project."""
    return await vip_subnet(side)


def _wanted(config: pytest.Config) -> str:
    option = config.getoption("real", None)
    return str(option or os.environ.get("CONTRACT_REAL") or "auto")


def _side_of(item: pytest.Item) -> str | None:
    callspec = getattr(item, "callspec", None)
    return None if callspec is None else callspec.params.get("side")


def _find_lab() -> Any:
    """The facts of a lab whose Neutron answers, or None."""
    try:
        from lab import facts

        lab = facts.load()
    except (ImportError, OSError, ValueError, KeyError):
        return None
    url = urlsplit(lab.cloud.neutron_url)
    try:
        socket.create_connection((url.hostname, url.port), timeout=30).close()
    except OSError:
        return None
    return lab
