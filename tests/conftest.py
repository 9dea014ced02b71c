"""Options of the tables of faults, and the API server that a session shares."""

import os
import secrets
from pathlib import Path

import pytest

from tests import samples
from tests.tables import report

USERS = ("controller", "daemon", "nobody")  # each with a token; the first two get permissions


def pytest_addoption(parser):
    parser.addoption(
        "--all-faults",
        action="store_true",
        help="tables of faults: strike every life with every fault, not a sample of them",
    )
    parser.addoption(
        "--seed",
        type=int,
        help="choose the samples of the session that printed this number",
    )


def pytest_configure(config):
    """Choose the seed, or take the one of the session that this process is a part of."""
    given = getattr(config, "workerinput", {}).get("seed", config.getoption("--seed"))
    config.stash[samples.SEED] = secrets.randbelow(10**6) if given is None else given


def pytest_report_header(config):
    """Tell the seed, by which the same samples can be run again."""
    return f"samples: chosen by --seed={config.stash[samples.SEED]}"


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node):
    """Tell a process of this session the seed."""
    node.workerinput["seed"] = node.config.stash[samples.SEED]


def pytest_collection_modifyitems(config, items):
    """Give more time to tests of many lives at once, and choose the sample of the others.

    The former take long where the machine is busy.
    """
    for item in items:
        if any(name.endswith("lanes") for name in getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.timeout(600))
    samples.choose(items, config.stash[samples.SEED])


# Component tests run in several processes; each hands its part of the tables to the first.


def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["faults"] = report.part(session.config)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    part = getattr(node, "workeroutput", {}).get("faults")
    if part:
        node.config.stash.setdefault(report.PARTS, []).append(part)


def pytest_terminal_summary(terminalreporter, config):
    for line in report.summary(config):
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def kube_server(tmp_path_factory):
    """Start the API server of this session; build its programs if they are not there yet."""
    from lab.install import binaries  # most sessions need neither
    from tests.kit.kube.server import KubeServer

    programs = binaries.ensure(["etcd", "kube-apiserver"])
    server = KubeServer(tmp_path_factory.mktemp("kube"), programs, USERS)
    try:
        server.start()
        yield server
    finally:
        server.close()
        if reports := os.environ.get("KURYR_LAB_REPORTS"):
            # the audit of a whole run counts what was asked of this server, too
            worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
            with (Path(reports) / f"component-audit-{worker}.log").open("a") as kept:
                kept.write(server.audit_log.read_text())
