"""Ports of pools, in few words."""

from kuryr_k8s.drivers.base import PooledPort, PoolKey
from kuryr_k8s.drivers.base.pool import Claim, Limits
from kuryr_k8s.drivers.pools.state import PoolState

KEY = PoolKey("project", "node1", "network", ("subnet",), ("group",))
OTHER = KEY._replace(place="node2")
THIRD = KEY._replace(place="node3")
FOREIGN = OTHER._replace(project_id="another")


def claim(number):
    return Claim(f"pod{number}", "eth0")


def port_of(name, key, *, fit=True):
    return PooledPort(id=name, key=key, mac="", fixed_ips=(), name="", device_id="", fit=fit)


def ports_of(names, key=KEY, fit=True):
    return [port_of(name, key, fit=fit) for name in names.split()]


def state_of(names="", key=KEY, **limits):
    """A state with these ports available, made one second after the other."""
    state = PoolState(Limits(**limits))
    add(state, names, key)
    return state


def add(state, names, key):
    for now, port in enumerate(ports_of(names, key)):
        state.adopt(port, float(now))


def places(state, key=KEY):
    pool = state.pools.get(key)
    names = ("available", "in_use", "returning", "leaving")
    found = {name: sorted(getattr(pool, name, ())) for name in names}
    return {name: ports for name, ports in found.items() if ports}
