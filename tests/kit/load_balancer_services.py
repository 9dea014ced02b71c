"""What Services of type LoadBalancer have outside: setting the scene, waiting, looking."""

PREFIX = "loadbalancer.openstack.org/"
INTERNAL = "service.beta.kubernetes.io/openstack-internal-load-balancer"
READY = "kuryr.openstack.org/LoadBalancerReady"
UNSUPPORTED = "kuryr.openstack.org/Unsupported"
ID = f"{PREFIX}load-balancer-id"
HTTP, DNS = ("http", 80), ("dns", 53, "UDP")
PORTS = [{"port": 80, "protocol": "TCP"}]


def furnish_outside(cloud, options):
    """An external network behind a router, as the operator configures it; and provider amphora,
    which does everything. The options with those that go with it."""
    cloud.public = cloud.add_external_network("public", "172.24.4.0/24", "172.24.5.0/24")
    cloud.router = cloud.add_router(cloud.public["id"], cloud.services["subnets"][0])
    options["neutron_defaults"]["external_svc_net"] = cloud.public["id"]
    options["kubernetes"]["endpoints_driver_octavia_provider"] = "amphora"
    options["octavia_defaults"] |= {"member_mode": "L3", "lb_algorithm": "ROUND_ROBIN"}
    return options


def open_up(services):
    furnish_outside(services.cloud, services.options)


def marks(**annotations):
    """Annotations by the last part of their names, with - for _."""
    return {f"{PREFIX}{name.replace('_', '-')}": str(text) for name, text in annotations.items()}


async def belong_to(services, project_id):
    """The Services of the namespace are another project's."""
    cloud = services.cloud
    cloud.share(cloud.services["id"], project_id)
    shared = {"object_type": "security_group", "action": "access_as_shared"}
    shared |= {"object_id": cloud.group["id"], "target_tenant": project_id}
    cloud.store.add("rbac_policy", shared | {"project_id": cloud.project_id})
    path = f"/api/v1/namespaces/{services.cluster.namespace}"
    mark = {"metadata": {"annotations": {"openstack.org/kuryr-project": project_id}}}
    await services.client.patch(path, mark)


async def expose(services, *ports, annotations=None, endpoints=("10.62.0.5",), **spec):
    """A Service of type LoadBalancer with endpoints is created."""
    await services.set_slice("a", *endpoints, ports=[("http", 8080), ("dns", 5353, "UDP")])
    return await services.add_service(
        "web", *(ports or (HTTP,)), type="LoadBalancer", annotations=annotations, **spec
    )


async def until_reached(services, name="web", but=None):
    """Wait until the Service has an ingress, other than ``but``; it."""

    async def reached():
        ingress = await ingress_of(services, name)
        return ingress if ingress and ingress != but else None

    return await services.until(reached)


async def until_ingress(services, expected, name="web"):
    """Wait until these are the ingress' addresses."""

    async def told():
        return [entry.get("ip") for entry in await ingress_of(services, name)] == expected

    await services.until(told)


async def ingress_of(services, name="web"):
    status = (await services.service(name))["status"]
    return status["loadBalancer"].get("ingress", [])


async def until_condition(services, kind, status, name="web"):
    """Wait until the condition has this status ("True", "False", None); its reason and message."""

    async def said():
        found = (await services.service(name))["status"].get("conditions", [])
        by_type = {condition["type"]: condition for condition in found}
        condition = by_type.get(kind, {})
        if condition.get("status") != status:
            return None
        return (condition["reason"], condition["message"]) if condition else ("", "")

    return await services.until(said)


def balancer(services, part=""):
    """The tree of the load balancer with this in the last part of its name; None: there is none.

    "" is of the (first) ClusterIP, "external" the other one.
    """
    named = {tree["name"].partition("/")[2].partition("/")[2]: tree for tree in services.trees()}
    return named.get(part)


def listener(services, part=""):
    """Its first one."""
    return balancer(services, part)["listeners"][0]


def floating(services):
    """{floating address: VIP that it leads to}."""
    return {
        floating_ip["floating_ip_address"]: floating_ip["fixed_ip_address"]
        for floating_ip in services.cloud.floating_ips.values()
    }


def operators(services, **attributes):
    """A load balancer that an operator has made, with a listener; its id."""
    octavia = services.cloud.octavia
    body = {
        "name": "operators",
        "project_id": services.cloud.project_id,
        "vip_subnet_id": services.cloud.services["subnets"][0],
        "listeners": [{"protocol": "TCP", "protocol_port": 22, "name": "own"}],
    }
    made = octavia._balancers.create(body | attributes, octavia.progress)
    octavia.progress.finish(made["id"])
    return made["id"]
