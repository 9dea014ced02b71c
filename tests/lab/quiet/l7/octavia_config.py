"""Print what Octavia's own template makes of listeners; run by the Python that has Octavia.

Reads JSON: ``{"address": of the VIP, "socket": path, "pools": {name: port}, "listeners":
[{"port": port, "default_pool": name or null, "policies": [{"action", "pool", "prefix", "code",
"rules": [{"type", "compare_type", "value", "invert"}]}]}]}``.
"""

import itertools
import json
import sys
from types import SimpleNamespace

from octavia.common import constants
from octavia.common.jinja.haproxy.combined_listeners.jinja_cfg import JinjaTemplater

MEMBERS = "127.0.0.1"


class Thing(SimpleNamespace):
    """An object whose other attributes are None."""

    def __getattr__(self, name):
        return None


def main(asked):
    numbers = itertools.count(1)
    ids = (f"id-{number}" for number in numbers)
    balancer = Thing(
        id="lb", project_id="project", enabled=True, topology="SINGLE", amphorae=[],
        additional_vips=[], vip=Thing(ip_address=asked["address"]),
    )  # fmt: skip
    amphora = Thing(id="amphora", role="STANDALONE")
    listeners = []
    for each in asked["listeners"]:
        pools = {name: pool(name, port, ids) for name, port in asked["pools"].items()}
        policies = [policy(given, pools, ids) for given in each["policies"]]
        listeners.append(
            Thing(
                id=next(ids),
                protocol=constants.PROTOCOL_HTTP,
                protocol_port=each["port"],
                peer_port=1025,
                insert_headers={},
                connection_limit=100,
                enabled=True,
                load_balancer=balancer,
                pools=list(pools.values()),
                default_pool=pools.get(each["default_pool"]),
                l7policies=policies,
            )
        )
    templater = JinjaTemplater(connection_logging=False)
    print(
        templater.build_config(
            amphora, listeners, None, ("2", "6"), {}, socket_path=asked["socket"]
        )
    )


def pool(name, port, ids):
    member = Thing(
        id=next(ids), ip_address=MEMBERS, protocol_port=port, weight=1, enabled=True,
        operating_status="ONLINE",
    )  # fmt: skip
    return Thing(
        id=f"pool-{name}-{next(ids)}",
        protocol=constants.PROTOCOL_HTTP,
        lb_algorithm=constants.LB_ALGORITHM_ROUND_ROBIN,
        enabled=True,
        members=[member],
    )


def policy(given, pools, ids):
    rules = [Thing(id=next(ids), enabled=True, **rule) for rule in given["rules"]]
    return Thing(
        id=next(ids),
        action=given["action"],
        redirect_pool=pools.get(given["pool"]),
        redirect_prefix=given["prefix"],
        redirect_http_code=given["code"],
        enabled=True,
        l7rules=rules,
    )


if __name__ == "__main__":
    main(json.load(sys.stdin))
