"""The product's L7 router on the lab."""

from __future__ import annotations

import json
from pathlib import Path

from lab import facts
from lab.kubernetes.client import kubectl
from lab.openstack import cloud
from lab.openstack.rest import Api
from lab.process import CommandError, run, wait_until

HANDLERS = "l7_router,ingress,ocp_route"
CLASS_FILE, CLASS = "ingressclass.yaml", "kuryr"
# It lets the controller read the certificates of Ingresses.
SECRETS_FILE = "rbac/optional/tls-secrets.yaml"
ROUTES_FILE = "crds/optional/route.yaml"
SETTINGS = {"tls": "true"}
NAME = "kuryr-l7-router"


def up(lab: facts.Lab, seconds: float = 120) -> str:
    """Wait until the router is there; return its address.

    :raises CommandError: it is not in time.
    """
    if not wait_until(lambda: bool(_address(lab)), seconds, 0.5):
        raise CommandError(f"after {seconds:.0f} s there is no L7 router")
    return _address(lab)


def down(lab: facts.Lab, admin_socket: Path, seconds: int = 120) -> None:
    """Delete the router, if there is one, by the product's own command.

    It returns when the router is gone, and nothing tells where it was any more.

    :param admin_socket: the controller's.
    :raises CommandError: it is not in time.
    """
    octavia = Api(f"{lab.cloud.octavia_url}/v2/lbaas", cloud.admin_token())

    def is_there() -> bool:
        return bool(octavia.get("/loadbalancers", name=NAME)["loadbalancers"])

    if not is_there():
        return
    run([f"{lab.bin}/kuryr-k8s", "l7-router", "delete", f"--socket={admin_socket}"])
    if not wait_until(lambda: not (is_there() or _address(lab)), seconds, 0.5):
        raise CommandError(f"after {seconds} s the L7 router is still there")


def _address(lab: facts.Lab) -> str:
    """Return the floating IP that the router's ConfigMap tells; empty if it tells none."""
    shown = ("-n", "kube-system", "get", "configmap", NAME, "--ignore-not-found", "-o", "json")
    printed = kubectl(lab, *shown)
    data = (json.loads(printed).get("data") or {}) if printed else {}
    return str(data.get("floating-ip", ""))
