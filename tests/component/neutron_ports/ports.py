"""NeutronPorts, and what the tests of them have users do."""

from tests.kit.confs import NODE
from tests.kit.kube.objects import make_neutron_port, path_of

NAME, STICKY = "openstack.org/neutron_port", "openstack.org/sticky"
NETWORK = "openstack.org/network_id"
PATIENCE = {"first_refused": 0.2, "refused": 0.2, "first_retry": 0.1, "unneeded": 0.1}
LATE = {"first_refused": 600.0, "refused": 600.0}  # what comes sooner was woken


def options(mode="bind", patience=None, **groups):
    kubernetes = {
        "multi_vif_drivers": "named_network",
        "enabled_handlers": "vif,kuryrport,neutron_port",
        "neutron_ports": mode,
    }
    defaults = {"sweep_interval": "1"} | groups.pop("neutron_defaults", {})
    return {
        "kubernetes": kubernetes,
        "neutron_defaults": defaults,
        "patience": PATIENCE | (patience or {}),
        **groups,
    }


async def add(stage, name, *, labels=None, **spec):
    """A user makes a NeutronPort."""
    return await stage.client.create(
        make_neutron_port(name, stage.cluster.namespace, labels=labels, **spec)
    )


def path(stage, name):
    return path_of(make_neutron_port(name, stage.cluster.namespace))


async def status(stage, name):
    """The status; empty if there is none, or no such NeutronPort."""
    found = await stage.client.find(path(stage, name))
    return (found or {}).get("status") or {}


async def until(stage, name, phase):
    """Wait until the NeutronPort is in a phase; its status."""

    async def reached():
        found = await status(stage, name)
        return found if found.get("phase") == phase else None

    return await stage.until(reached)


async def until_ready_is(stage, name, reason):
    """Wait until the condition Ready has a reason; its message."""

    async def reached():
        conditions = (await status(stage, name)).get("conditions") or ()
        found = next((each for each in conditions if each["reason"] == reason), None)
        return found and (found["message"] or reason)

    return await stage.until(reached)


async def until_gone(stage, name):
    async def gone():
        return await stage.client.find(path(stage, name)) is None

    await stage.until(gone)


async def run(stage, name, node=NODE, **annotations):
    """Have a Pod run; it, and its port in Neutron."""
    pod = await stage.cluster.add_pod(name, node=node, annotations=annotations)
    vif = await stage.until_plugged_in(name)
    await stage.activate(name)
    return pod, stage.cloud.ports[vif["id"]]


def member_groups(stage):
    """The ids of the groups by which load balancers and nodes reach Pods."""
    groups = stage.cloud.security_groups.values()
    return [group["id"] for group in groups if group["name"].endswith("from load balancers")]


def ips(port):
    return {ip["ip_address"] for ip in port["fixed_ips"]}
