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
    shown = ("-n", "kube-system", "get", "configmap", NAME, "--ignore-not-found", "-o", "json")

    def address() -> str:
        printed = kubectl(lab, *shown)
        data = (json.loads(printed).get("data") or {}) if printed else {}
        return str(data.get("floating-ip", ""))

    if not wait_until(lambda: bool(address()), seconds, 0.5):
        raise CommandError(f"after {seconds:.0f} s there is no L7 router")
    return address()


def down(lab: facts.Lab, admin_socket: Path, seconds: int = 120) -> None:
    """Delete the router, if there is one, by the product's own command; return when it is gone.

    :param admin_socket: the controller's.
    :raises CommandError: it is not in time.
    """
    octavia = Api(f"{lab.cloud.octavia_url}/v2/lbaas", cloud.admin_token())

    def is_gone() -> bool:
        return not octavia.get("/loadbalancers", name=NAME)["loadbalancers"]

    if is_gone():
        return
    run([f"{lab.bin}/kuryr-k8s", "l7-router", "delete", f"--socket={admin_socket}"])
    if not wait_until(is_gone, seconds, 0.5):
        raise CommandError(f"after {seconds} s the L7 router is still there")
