"""What stands in cluster and cloud, in a form that is the same for each undisturbed life.

Ids, VLAN ids, addresses and times differ between two lives. They become names in the order of
their appearance, the same name for the same value, so that what points at something still does.
"""

import json
import re

from kuryr_k8s.cloud.neutron.specific_ports import ATTACHED_TO, ON_TRUNK

REMAINS = (ON_TRUNK, ATTACHED_TO)
_VOLATILE = {"resourceVersion", "managedFields", "creationTimestamp", "deletionTimestamp"}
_VOLATILE |= {"created_at", "updated_at", "openstack.org/kuryr-creator", "eventTime"}
_VOLATILE |= {"openstack.org/kuryr-leader", "lastTransitionTime"}
# Neutron counts its own changes, and an adopted port may be one change older or younger.
_VOLATILE |= {"revision_number"}
_VLAN_IDS = {"vlan_id", "segmentation_id", "tag"}  # of a VIF, a subport, and its binding:profile
_TOKEN = re.compile(
    r"(?P<tap>tap[0-9a-f-]{11})"
    r"|(?P<id>[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}|\b[0-9a-f]{32}\b)"
    r"|(?P<member>\bpooled-[a-z2-7]{8}\b)"  # a NeutronPort of a pool
    r"|(?P<vlan>VLAN \d+)"
    r"|(?P<namespace>test-[0-9a-f]{10})"
    r"|(?P<mac>\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b)"
    r"|(?P<v4>\b(?:10\.(?:62|63|96|97)|172\.24)\.\d+\.\d+\b(?!/))"
    r"|(?P<v6>\bfd62:[0-9a-f:]+\b(?!/))"
)


async def state_of(stage):
    """KuryrPorts and Events, all ports and trunks: comparable with ==.

    Which of a pool's ports a Pod has does not matter: those that KuryrPorts name come first, in
    the order of their names there.
    """
    kuryrports = await stage.kuryrports()
    recorded = json.dumps(kuryrports)

    def place(port):
        found = recorded.find(port["id"])
        return (found if found >= 0 else len(recorded), port["status"])

    ports = [_without_remains(port) for port in sorted(stage.cloud.ports.values(), key=place)]
    order = [port["id"] for port in ports]
    found = {
        "kuryrports": kuryrports,
        "events": sorted(await stage.events() + await stage.node_events()),
        "ports": ports,
        "trunks": [_sorted(trunk, order) for trunk in stage.cloud.trunks.values()],
        **await stage.more_state(),
    }
    return _named(_kept(found))


def _without_remains(port):
    """Return the port without tags that sweeps remove at some time."""
    return port | {"tags": [tag for tag in port["tags"] if not tag.startswith(REMAINS)]}


def differences(wanted, found, path=""):
    """Every field that differs, in a line each."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        return [
            line
            for key in sorted(wanted.keys() | found.keys())
            for line in differences(wanted.get(key), found.get(key), f"{path}.{key}")
        ]
    if isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        return [
            line
            for number, (one, other) in enumerate(zip(wanted, found, strict=True))
            for line in differences(one, other, f"{path}[{number}]")
        ]
    if isinstance(wanted, list) and isinstance(found, list):
        return [f"{path[1:]}: {len(found)}, undisturbed {len(wanted)}"]
    return [] if wanted == found else [f"{path[1:]}: {found}, undisturbed {wanted}"]


def _sorted(trunk, order):
    """Return the trunk with its subports in the order of the ports."""
    subports = sorted(trunk["sub_ports"], key=lambda subport: order.index(subport["port_id"]))
    return trunk | {"sub_ports": subports}


def _kept(value):
    if isinstance(value, dict):
        value = {
            key: f"VLAN {item}" if key in _VLAN_IDS and isinstance(item, int) else item
            for key, item in value.items()
        }
        if "fixed_ips" in value:  # in the order of their subnets' ids
            ips = sorted(value["fixed_ips"], key=lambda ip: ":" in ip["ip_address"])
            value = value | {"fixed_ips": ips}
        kept = {key: _kept(item) for key, item in value.items() if key not in _VOLATILE}
        return {key: item for key, item in kept.items() if (key, item) != ("annotations", {})}
    if isinstance(value, list | tuple):
        return [_kept(item) for item in value]
    return value


def _named(found):
    text = json.dumps(found, sort_keys=True)
    names = {}

    def name(match):
        kind, value = match.lastgroup, match[0]
        if kind == "tap":  # an interface on the host is named after its port
            owner = next((known for known in names if known.startswith(value[3:])), None)
            return f"tap-of-{names.get(owner)}"
        return names.setdefault(value, f"{kind}-{len(names)}")

    return json.loads(_TOKEN.sub(name, text))
