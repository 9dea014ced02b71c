"""Keystone, Neutron, Barbican and Octavia as components of the lab.

No message broker is needed: Neutron with OVN has no agents that would listen, and Octavia's worker
is a thread of its API. Octavia comes last, so that nothing has to wait for it.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from lab.install import openstack as python_services
from lab.lifecycle import probes
from lab.lifecycle.graph import Step
from lab.lifecycle.supervisor import Component
from lab.openstack import config as openstack_config
from lab.openstack import mariadb
from lab.openstack.config import (
    ADMIN_PASSWORD,
    BARBICAN_PORT,
    HOST,
    KEYSTONE_PORT,
    KEYSTONE_URL,
    NEUTRON_PORT,
    OCTAVIA_PORT,
    OCTAVIA_SOCKETS,
)
from lab.paths import REPOSITORY, SOURCE, Paths
from lab.process import run

_ENV = {"PYTHONWARNINGS": "ignore"}


def components(paths: Paths) -> list[Component]:
    """List every daemon of OpenStack, MariaDB included."""
    return [
        mariadb.component(paths),
        _keystone(paths),
        *_neutron(paths),
        _barbican(paths),
        *_octavia(paths),
    ]


def steps(paths: Paths) -> list[Step]:
    """List the steps for configuration and schemas, each before the service that reads it."""
    return [
        Step("mariadb-data", lambda: mariadb.prepare(paths), ("packages",), 0.5),
        Step("keystone-schema", lambda: _migrate_keystone(paths), ("mariadb", "python"), 0.5),
        Step("neutron-schema", lambda: _migrate_neutron(paths), ("mariadb", "python"), 0.5),
        Step("barbican-schema", lambda: _migrate_barbican(paths), ("mariadb", "python"), 0.5),
        Step("octavia-schema", lambda: _migrate_octavia(paths), ("mariadb", "python"), 0.5),
    ]


def _uwsgi(paths: Paths, port: int, threads: int, *application: str) -> tuple[str, ...]:
    """Build a command line for one process with threads.

    The in-memory transports and caches exist once.
    """
    return (
        str(python_services.location(paths) / "bin/uwsgi"),
        "--http-socket",
        f"127.0.0.1:{port}",
        "--http-socket",
        f"{HOST}:{port}",
        "--master",
        "--processes",
        "1",
        "--threads",
        str(threads),
        "--enable-threads",
        "--lazy-apps",
        "--need-app",
        "--die-on-term",
        "--buffer-size",
        "65535",
        "--so-keepalive",
        "--add-header",
        "Connection: close",
        "--thunder-lock",
        "--disable-logging",
        *application,
    )


def _keystone(paths: Paths) -> Component:
    return Component(
        "keystone",
        _uwsgi(paths, KEYSTONE_PORT, 4, "--module", "keystone.wsgi.api:application"),
        ready=(probes.http(f"http://127.0.0.1:{KEYSTONE_PORT}/v3", pattern="stable"),),
        needs=("mariadb",),
        grace=4,
        files=(str(paths.etc / "keystone/keystone.conf"),),
        env=_ENV | {"OS_KEYSTONE_CONFIG_DIR": str(paths.etc / "keystone")},
    )


def _neutron(paths: Paths) -> list[Component]:
    files = tuple(_neutron_files(paths)[1::2])
    worker = python_services.location(paths) / "bin/neutron-ovn-maintenance-worker"
    return [
        Component(
            "neutron",
            _uwsgi(paths, NEUTRON_PORT, 8, "--module", "neutron.wsgi.api:application"),
            ready=(probes.http(f"http://127.0.0.1:{NEUTRON_PORT}/", pattern="v2.0"),),
            needs=("mariadb", "keystone", "ovn-nb", "ovn-sb"),
            grace=4,
            timeout=120,
            files=files,
            env=_ENV
            | {
                "OS_NEUTRON_CONFIG_DIR": str(paths.etc / "neutron"),
                "OS_NEUTRON_CONFIG_FILES": "neutron.conf;ml2_conf.ini",
            },
        ),
        # Repairs differences between Neutron's database and OVN's; it has no interface to ask.
        Component(
            "neutron-maintenance",
            (str(worker), *_neutron_files(paths)),
            needs=("neutron",),
            grace=3,
            env=_ENV,
            files=files,
        ),
    ]


def _barbican(paths: Paths) -> Component:
    home = openstack_config.barbican_home(paths)
    application = home / "barbican_wsgi.py"
    return Component(
        "barbican",
        _uwsgi(paths, BARBICAN_PORT, 4, "--wsgi-file", str(application)),
        ready=(probes.http(f"http://127.0.0.1:{BARBICAN_PORT}/healthcheck", pattern="OK"),),
        needs=("mariadb", "keystone"),
        grace=4,
        files=(str(home / "barbican.conf"), str(application)),
        env=_barbican_env(paths),
    )


def _octavia(paths: Paths) -> list[Component]:
    etc = paths.etc / "octavia"
    files = (str(etc / "octavia.conf"), str(etc / "octavia_wsgi.py"))
    drivers = tuple(str(file) for file in sorted((SOURCE / "openstack" / "amphora").glob("*.py")))
    agent = python_services.location(paths) / "bin/octavia-driver-agent"
    return [
        # The API, when it loads the ovn provider, looks for the agent's sockets.
        Component(
            "octavia-agent",
            (str(agent), "--config-file", str(etc / "octavia.conf")),
            ready=(probes.unix_socket(str(OCTAVIA_SOCKETS / "status.sock")),),
            needs=("mariadb", "ovn-nb", "ovn-sb", "neutron"),
            env=_ENV,
            grace=4,
            files=files,
        ),
        Component(
            "octavia",
            _uwsgi(paths, OCTAVIA_PORT, 4, "--wsgi-file", str(etc / "octavia_wsgi.py")),
            ready=(probes.http(f"http://127.0.0.1:{OCTAVIA_PORT}/", pattern="v2"),),
            # It puts the amphorae into node1's Open vSwitch.
            needs=("octavia-agent", "keystone", "neutron", "barbican", "ovn-controller-node1"),
            env=_ENV
            | {
                "PYTHONPATH": str(REPOSITORY),
                "KURYR_LAB_STATE": str(paths.state),
                "KURYR_LAB_CACHE": str(paths.cache),
            },
            grace=4,
            timeout=120,
            files=(*files, *drivers),
        ),
    ]


def prepare_octavia(paths: Paths, management_network: str) -> None:
    """Write Octavia's files; remove old sockets, which the API would take for the agent."""
    etc = paths.etc / "octavia"
    etc.mkdir(parents=True, exist_ok=True)
    if not (etc / "ca.pem").exists():
        run(
            [
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "rsa:2048",
                "-nodes",
                "-days",
                "3650",
                "-subj",
                "/CN=octavia-lab-ca",
                "-keyout",
                str(etc / "ca.key"),
                "-out",
                str(etc / "ca.new"),
            ]
        )
        (etc / "ca.new").rename(etc / "ca.pem")
    openstack_config.write_octavia(paths, management_network)
    OCTAVIA_SOCKETS.mkdir(parents=True, exist_ok=True)
    if not probes.unix_socket(str(OCTAVIA_SOCKETS / "status.sock")).answer():
        for path in OCTAVIA_SOCKETS.glob("*.sock"):
            path.unlink()


def _migrate_keystone(paths: Paths) -> None:
    openstack_config.write_keystone(paths)
    openstack_config.write_clouds(paths)
    program = [
        str(python_services.location(paths) / "bin/keystone-manage"),
        "--config-file",
        str(paths.etc / "keystone" / "keystone.conf"),
    ]

    def work() -> None:
        for keys in ("fernet", "credential"):
            shutil.rmtree(paths.data / "keystone" / keys, ignore_errors=True)
        run([*program, "db_sync"], env=_ENV)
        for keys in ("fernet_setup", "credential_setup"):
            run([*program, keys, "--keystone-user", "root", "--keystone-group", "root"], env=_ENV)
        run(
            [
                *program,
                "bootstrap",
                "--bootstrap-password",
                ADMIN_PASSWORD,
                "--bootstrap-region-id",
                "RegionOne",
                "--bootstrap-admin-url",
                KEYSTONE_URL,
                "--bootstrap-internal-url",
                KEYSTONE_URL,
                "--bootstrap-public-url",
                KEYSTONE_URL,
            ],
            env=_ENV,
        )

    mariadb.migrate(paths, "keystone", _version(paths), work)


def _migrate_neutron(paths: Paths) -> None:
    openstack_config.write_neutron(paths, python_services.location(paths))
    program = str(python_services.location(paths) / "bin/neutron-db-manage")

    def work() -> None:
        run([program, *_neutron_files(paths), "upgrade", "heads"], env=_ENV, timeout=300)

    mariadb.migrate(paths, "neutron", _version(paths), work)


def _migrate_barbican(paths: Paths) -> None:
    openstack_config.write_barbican(paths, python_services.location(paths))
    program = str(python_services.location(paths) / "bin/barbican-db-manage")

    def work() -> None:
        run([program, "upgrade"], env=_barbican_env(paths), timeout=300)

    mariadb.migrate(paths, "barbican", _version(paths), work)


def _migrate_octavia(paths: Paths) -> None:
    openstack_config.write_octavia(paths, "to be made")
    program = str(python_services.location(paths) / "bin/octavia-db-manage")
    config = str(paths.etc / "octavia" / "octavia.conf")

    def work() -> None:
        run([program, "--config-file", config, "upgrade", "head"], env=_ENV, timeout=300)

    mariadb.migrate(paths, "octavia", _version(paths), work)


def free_flat_network(paths: Paths) -> None:
    """Undo the reservation of the external network if Neutron was killed while it made it.

    Neutron commits the reservation before the network, and later refuses to use it again.
    """
    mariadb.sql(
        paths,
        "delete from neutron.ml2_flat_allocations where physical_network not in "
        "(select physical_network from neutron.networksegments "
        "where physical_network is not null)",
    )


def add_sriov_agent(paths: Paths, chassis: str) -> None:
    """Add a row that stands for an SR-IOV agent on the chassis, so that such ports can be bound.

    No machine here has such a card; the row's heartbeat is in the far future.
    """
    mariadb.insert_missing(
        paths,
        "neutron.agents",
        {
            "id": "uuid()",
            "agent_type": "'NIC Switch agent'",
            "binary": "'neutron-sriov-nic-agent'",
            "topic": "'N/A'",
            "host": f"'{chassis}'",
            "admin_state_up": "1",
            "created_at": "now()",
            "started_at": "now()",
            "heartbeat_timestamp": "'2099-01-01 00:00:00'",
            "load": "0",
            "configurations": """'{"device_mappings": {"physnet1": ["ens1f0"]}, "devices": 0, """
            """"extensions": []}'""",
            "resource_versions": "'{}'",
            "description": "'a static row, no process'",
        },
        f"agent_type = 'NIC Switch agent' and host = '{chassis}'",
    )


def _barbican_env(paths: Paths) -> dict[str, str]:
    """Build the environment in which Barbican finds its configuration.

    It takes no option for that, and looks in the home directory before /etc.
    """
    return _ENV | {"HOME": str(openstack_config.barbican_home(paths))}


def _neutron_files(paths: Paths) -> list[str]:
    etc: Path = paths.etc / "neutron"
    return ["--config-file", str(etc / "neutron.conf"), "--config-file", str(etc / "ml2_conf.ini")]


def _version(paths: Paths) -> str:
    """Name what a schema was made by: other services, other schema."""
    return python_services.location(paths).name
