"""The cloud and the cluster that the tests run against: the lab's, or others that exist.

Others are found by OS_CLOUD (an administrator of the cloud), KUBECONFIG (one of the cluster), and
KURYR_TESTS_FACTS: a JSON file, which README.md describes.
"""

import functools
import json
import os
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openstack
import yaml

from lab import facts
from lab.install import images
from lab.kubernetes.client import Kube, KubeError, Unreachable
from lab.kubernetes.client import kubectl as labs_kubectl
from lab.kuryr.installation import CLUSTER_TAG
from lab.openstack.rest import Api, token
from lab.process import CommandError, run

FACTS = "KURYR_TESTS_FACTS"


@dataclass(frozen=True)
class Node:
    """A Node of the cluster, and the name of its host in Neutron."""

    name: str
    host: str


@dataclass(frozen=True)
class Site:
    """A cloud and a cluster, as their administrators see them."""

    cluster_tag: str
    project_id: str
    # By the names that tests call them by: node1 and node2.
    nodes: Mapping[str, Node]
    # By the names that the lab gives images: images.BUSYBOX and images.CURL.
    images: Mapping[str, str]
    # Of the Pods' network: {"mtu": 1442, "v4": {"id", "cidr", "gateway"}, "v6": the same}.
    pods: Mapping[str, Any]
    pod_security_group: str
    # Of Services' addresses.
    services_network: str
    # What answers pings from Pods, and is in another network: an address of each family.
    beyond: tuple[str, ...]
    neutron: Api
    octavia: Api
    kube: Any
    kubectl: Callable[..., str]


def on_the_lab():
    """Return whether the tests run against the lab."""
    return FACTS not in os.environ


@functools.cache
def site():
    """Return the site that the environment names; the lab, if it names none."""
    return of_the_lab(facts.load()) if on_the_lab() else existing(Path(os.environ[FACTS]))


def of_the_lab(lab):
    clouds = yaml.safe_load(Path(lab.cloud.clouds_yaml).read_text())["clouds"]
    auth = clouds["lab"]["auth"]
    secret = token(auth["auth_url"], auth["username"], auth["password"], auth["project_name"])
    network = lab.cloud.networks["pods"]
    subnets = {
        family: {"id": subnet.id, "cidr": subnet.cidr, "gateway": subnet.gateway}
        for family, subnet in (("v4", network.v4), ("v6", network.v6))
    }
    return Site(
        cluster_tag=CLUSTER_TAG,
        project_id=lab.cloud.project_id,
        nodes={name: Node(name, node.chassis) for name, node in lab.nodes.items()},
        images={},
        pods={"mtu": 1442, **subnets},
        pod_security_group=lab.cloud.security_groups["pods"],
        services_network=lab.cloud.networks["services"].id,
        beyond=(lab.vm1.v4, lab.vm1.v6),
        neutron=Api(f"{lab.cloud.neutron_url}/v2.0", secret),
        octavia=Api(f"{lab.cloud.octavia_url}/v2/lbaas", secret),
        kube=Kube(lab),
        kubectl=functools.partial(labs_kubectl, lab),
    )


def existing(path):
    found = json.loads(path.read_text())
    cloud = openstack.connect(cloud=os.environ["OS_CLOUD"])
    secret = cloud.auth_token
    neutron = cloud.endpoint_for("network").rstrip("/").removesuffix("/v2.0")
    octavia = cloud.endpoint_for("load-balancer").rstrip("/").removesuffix("/v2.0")
    return Site(
        cluster_tag=found["cluster_tag"],
        project_id=found["project_id"],
        nodes={name: Node(**node) for name, node in found["nodes"].items()},
        images={images.BUSYBOX: found["images"]["busybox"], images.CURL: found["images"]["curl"]},
        pods=found["pods"],
        pod_security_group=found["pod_security_group"],
        services_network=found["services_network"],
        beyond=tuple(found["beyond"]),
        neutron=Api(f"{neutron}/v2.0", secret),
        octavia=Api(f"{octavia}/v2/lbaas", secret),
        kube=ByKubectl(),
        kubectl=kubectl,
    )


def kubectl(*arguments, stdin=None, timeout=300):
    """Run kubectl with the KUBECONFIG of the environment; return what it printed."""
    return run(["kubectl", *arguments], stdin=stdin, timeout=timeout)


class ByKubectl:
    """What tests ask of `Kube`, by kubectl: it knows every way to log in."""

    def call(self, method, path, **query):
        """Send a request.

        :raises KubeError: a status of 400 or more.
        :raises Unreachable: no answer.
        """
        assert method == "GET"
        target = f"{path}?{urllib.parse.urlencode(query)}" if query else path
        try:
            return json.loads(kubectl("get", "--raw", target))
        except CommandError as error:
            if "(NotFound)" in str(error):
                raise KubeError(404, str(error)) from error
            raise Unreachable(str(error)) from error

    def items(self, path, **query):
        """Return the objects of a list."""
        return self.call("GET", path, **query)["items"]
