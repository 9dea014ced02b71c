"""The configurations of the product on the lab that tests ask for by the marker `product`."""

import configparser
import functools
import json

from lab.kubernetes import dns
from lab.kuryr import router, services
from lab.kuryr.installation import CONTROLLER, Installation, kubectl
from lab.paths import locked, write_atomic
from lab.process import CommandError, wait_until
from lab.progress import Progress
from lab.suite import interrupted
from tests.lab.site import on_the_lab

PATIENCE = 240  # seconds
# A pool is filled with few ports, and at once.
POOL_OPTIONS = {
    "ports_pool_min": "2",
    "ports_pool_batch": "2",
    "ports_pool_cooldown": "0",
    "ports_pool_update_frequency": "1",
    "ports_pool_cleanup_rate": "100",
}
# In the order in which their tests run: it costs half a minute to go from one to the next.
CONFIGURATIONS = {
    "full": {
        "pool": "neutron",
        "pool_options": POOL_OPTIONS,
        "with_services": True,
        "provider": "ovn",
    },
    "amphora": {"with_services": True, "provider": "amphora"},
    "router": {"with_services": True, "provider": "ovn", "with_router": True},
    "plain": {},
    "multus calls for all networks": {"multus": "default"},
    "multus calls for further networks": {"multus": "delegate"},
    "pods are selected": {"pod_selection": "annotated"},
    "pods are selected, and Services exposed": {
        "pod_selection": "annotated",
        "with_services": True,
        "provider": "ovn",
    },
    "neutron ports": {"neutron_ports": "create"},
}


@functools.cache
def prepared():
    """What interrupted runs have left is gone; once in each process of this run."""
    if on_the_lab():
        with _lock():
            interrupted.clear(_installation().lab)


@functools.cache
def _last():
    """The name of the configuration that this process has ensured, in a list."""
    return []


def ensure(name):
    """Give the controller this configuration; a cloud and a cluster that exist keep theirs."""
    if not on_the_lab() or _last() == [name]:
        return
    with _lock():
        _remember()
        _apply(_installation(**CONFIGURATIONS[name]))
    _last()[:] = [name]


def restore():
    """Give the controller the configuration that it had before the first test of this run."""
    if not on_the_lab():
        return
    with _lock():
        note = _note()
        if not note.exists():
            return
        before = json.loads(note.read_text())["configuration"]
        if not before["with_services"] and _configuration()["with_services"]:
            dns.down(_installation().lab)
        _apply(_installation(**before))
        note.unlink()
    _last().clear()


def _installation(**configuration):
    quiet = Progress(quiet=True)
    return Installation(progress=quiet, debug=_settings()["DEFAULT"].get("debug"), **configuration)


def _settings():
    """Return what stands in the controller's own file of settings."""
    found = configparser.ConfigParser(interpolation=None)
    found.read(Installation(progress=Progress(quiet=True)).root / f"{CONTROLLER}.conf")
    return found


def _configuration():
    """Return the controller's present configuration, as CONFIGURATIONS has them."""
    settings = _settings()
    kubernetes = settings["kubernetes"]
    pool = dict(settings["vif_pool"]) if settings.has_section("vif_pool") else {}
    for name in settings.defaults():
        pool.pop(name, None)
    kinds = kubernetes.get("vif_pool_driver", "noop") + pool.pop("vif_pool_mapping", "")
    return {
        "pool": "neutron" if "neutron" in kinds.replace("neutron-vif", "") else "noop",
        "pool_options": pool,
        "with_services": "lbaas_spec" in kubernetes.get("enabled_handlers", ""),
        "multus": kubernetes.get("multus", "none"),
        "pod_selection": kubernetes.get("pod_selection", "all"),
        "neutron_ports": kubernetes.get("neutron_ports", "off"),
        "with_router": "l7_router" in kubernetes.get("enabled_handlers", ""),
        "provider": kubernetes.get("endpoints_driver_octavia_provider", "ovn"),
    }


def _note():
    """Return the file that keeps the configuration from before the tests."""
    return Installation(progress=Progress(quiet=True)).before_tests


def _lock():
    return locked(_note().with_name("tests.lock"))


def _remember():
    """Note the configuration from before the tests; a killed run's note is older, and stays."""
    note = _note()
    known = json.loads(note.read_text()) if note.exists() else {"configuration": _configuration()}
    write_atomic(note, json.dumps(known | {"run": interrupted.this_run()}))


def _apply(installation):
    """Let the controller run with this configuration, and all that belongs to it be there."""
    if _configuration()["with_router"] and not installation.with_router:
        router.down(installation.lab, installation.admin_socket, PATIENCE)
    if installation.pool == "noop" and _configuration()["pool"] != "noop":
        installation.pools.drain(PATIENCE)
    if installation.with_router:
        installation.apply()
    installation.register_controller(1)
    installation.supervisor.start(CONTROLLER)
    configuration = _configuration()
    if configuration["pool"] == "noop":
        listed = ("get", "kuryrportpools", "--output=name")
        if not wait_until(lambda: not kubectl(installation.lab, *listed), PATIENCE, 0.5):
            raise CommandError("the controller has not deleted the KuryrPortPools")
    if configuration["with_services"]:
        services.up(installation.lab, configuration["provider"], PATIENCE)
    if configuration["with_router"]:
        router.up(installation.lab, PATIENCE)
