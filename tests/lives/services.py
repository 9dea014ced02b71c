"""Lives of a Service."""

from tests.kit.gated_pods import GatedPod
from tests.kit.load_balancer_services import (
    ID,
    INTERNAL,
    READY,
    ingress_of,
    marks,
    operators,
    until_condition,
    until_ingress,
)
from tests.lives.life import life

HTTP = ("http", 80)
PORTS = [("http", 8080), ("admin", 9001)]
TWO = {("10.62.0.5", 8080), ("10.62.0.6", 8080)}
DNS = [("dns", 5353, "UDP")]
UNREADABLE = marks(enable_health_monitor="perhaps")
RANGES = {"loadBalancerSourceRanges": ["192.0.2.0/24"]}
# What Octavia's answers do is the table of the driver (component/lbaas).
KUBE = frozenset({"kube"})


@life(
    environment="services",
    answers=KUBE,
    plain=True,
    writes=(
        "kube patch services",
        "kube patch endpoints",
        "kube patch endpoints #2",
        "kube patch endpoints #3",
        "neutron POST /load-balancer/v2.0/lbaas/loadbalancers",
        "neutron PUT /load-balancer/v2.0/lbaas/pools/{pool_id}/members",
        "neutron DELETE /load-balancer/v2.0/lbaas/loadbalancers/{id}",
    ),
)
async def served(stage, _keeper, at):
    """It is served, its endpoints change, and it is deleted."""
    await _run(stage)
    await at("served")
    await stage.set_slice("a", "10.62.0.5", "10.62.0.7", ports=PORTS)
    await stage.until_shown({("10.62.0.5", 8080), ("10.62.0.7", 8080)})
    await at("changed")
    await stage.delete_service()
    await stage.until_no_balancers()
    await at("end")


@life(
    environment="services",
    answers=KUBE,
    shared="served",
)
async def given_another_port(stage, _keeper, at):
    """Another port is added to it, and the first one is removed."""
    await _run(stage)
    await at("served")
    ports = [{"name": "http", "port": 80}, {"name": "admin", "port": 9000}]
    await stage.patch_service(spec={"ports": ports})
    await stage.until_shown(TWO | {("10.62.0.5", 9001), ("10.62.0.6", 9001)})
    await at("two ports")
    await stage.patch_service(spec={"ports": ports[1:]})
    await stage.until_shown({("10.62.0.5", 9001), ("10.62.0.6", 9001)})
    await stage.until_settled(listeners=1)
    await at("the other port")


@life(
    environment="services",
    answers=KUBE,
    shared="served",
)
async def waited_for(stage, _keeper, at):
    """A Pod waits for it by its readiness gate."""
    await _run(stage)
    await at("served")
    pod = await GatedPod(stage, "new", "10.62.0.7").start()
    await stage.set_slice("a", "10.62.0.5", "10.62.0.6", pod.endpoint(), ports=PORTS)
    await pod.until_passed()
    await stage.until_shown(TWO | {("10.62.0.7", 8080)})
    await at("passed")


@life(
    environment="services",
    answers=KUBE,
    shared="served",
)
async def turned_away(stage, _keeper, at):
    """It turns into an ExternalName, and back."""
    await _run(stage)
    await at("served")
    none = {"clusterIP": None, "clusterIPs": None, "ipFamilies": None, "ipFamilyPolicy": None}
    outside = {"type": "ExternalName", "externalName": "example.org"}
    await stage.patch_service(spec=outside | none)

    async def clean():
        meta = (await stage.service())["metadata"]
        marks = (await stage.endpoints())["metadata"].get("annotations")
        return not (meta.get("finalizers") or meta.get("annotations") or marks)

    await stage.until(clean)
    await at("turned away")
    await stage.patch_service(spec={"type": "ClusterIP", "externalName": None})
    await stage.until_shown(TWO)
    await at("turned back")


@life(
    environment="outside",
    answers=KUBE,
    writes=(
        "kube patch services",
        "kube patch endpoints",
        "kube patch endpoints #2",
        "kube patch services #2",
        "kube patch services/status",
        "kube patch services #3",
        "kube patch endpoints #3",
        "kube patch services/status #2",
        "kube patch services #4",
        "kube patch services #5",
        "neutron POST /load-balancer/v2.0/lbaas/loadbalancers",
        "neutron POST /load-balancer/v2.0/lbaas/loadbalancers #2",
        "neutron POST /floatingips",
        "neutron PUT /floatingips/{id}/tags",
        "neutron DELETE /floatingips/{id}",
        "neutron DELETE /load-balancer/v2.0/lbaas/loadbalancers/{id}",
        "neutron DELETE /load-balancer/v2.0/lbaas/loadbalancers/{id} #2",
    ),
)
async def exposed(stage, _keeper, at):
    """It is reached by a load balancer of its own; turned into a ClusterIP; deleted."""
    await _expose(stage)
    await at("reached")
    none = dict.fromkeys(RANGES)
    await stage.patch_service(spec={"type": "ClusterIP"} | none)

    async def alone():
        service = await stage.service()
        marks = service["metadata"].get("annotations") or {}
        told = await ingress_of(stage) or service["status"].get("conditions")
        written = any("load-balancer" in name for name in marks)
        held = service["metadata"].get("finalizers")
        return not (told or written or held) and len(stage.trees()) == 1

    await stage.until(alone)
    await at("alone")
    await stage.delete_service()
    await stage.until_no_balancers()
    await at("end")


# No Events: each controller reports once what it cannot read.
@life(
    environment="outside",
    options={"kubernetes": {"use_events": "false"}},
    answers=KUBE,
    shared="reached",
)
async def followed(stage, keeper, at):
    """Its annotations cannot be read any more; its members outside follow all the same."""
    await _expose(stage)
    await at("reached")
    await stage.patch_service(metadata={"annotations": UNREADABLE})
    await until_condition(stage, READY, "False")
    await keeper.restart()
    await stage.set_slice("a", "10.62.0.7", ports=[("http", 8080)])

    async def follow():
        members = [
            member["address"]
            for tree in stage.trees()
            for listener in tree["listeners"]
            for member in listener["pool"]["members"]
        ]
        return members == ["10.62.0.7"] * 2

    await stage.until(follow)
    await stage.until_shown({("10.62.0.7", 8080)})
    await at("followed")
    await stage.delete_service()
    await stage.until_service_gone()
    await at("end")


@life(
    environment="services",
    answers=KUBE,
    writes=(
        "neutron POST /load-balancer/v2.0/lbaas/loadbalancers",
        "neutron POST /load-balancer/v2.0/lbaas/pools",
        "neutron PUT /load-balancer/v2.0/lbaas/pools/{pool_id}/members",
        "neutron POST /load-balancer/v2.0/lbaas/listeners",
        "neutron DELETE /load-balancer/v2.0/lbaas/listeners/{id}",
        "neutron DELETE /load-balancer/v2.0/lbaas/pools/{id}",
        "neutron DELETE /load-balancer/v2.0/lbaas/loadbalancers/{id}",
    ),
)
async def attached(stage, _keeper, at):
    """It is attached to a load balancer, gets its own instead, and is deleted."""
    shared = operators(stage, provider="ovn")
    address = stage.cloud.load_balancers[shared]["vip_address"]
    await stage.set_slice("a", "10.62.0.5", ports=DNS)
    wishes = {**marks(load_balancer_id=shared), INTERNAL: "true"}
    await stage.add_service("web", ("dns", 53, "UDP"), type="LoadBalancer", annotations=wishes)
    await until_ingress(stage, [address])
    await stage.until_shown({("10.62.0.5", 5353)})
    await at("attached")
    await stage.patch_service(metadata={"annotations": {ID: None}})
    await stage.until_no_parts(shared)
    await _until_own(stage)
    await until_ingress(stage, [(await stage.service())["spec"]["clusterIP"]])
    await at("apart")
    await stage.delete_service()
    await stage.until_service_gone()
    await at("end")


async def _until_own(stage):
    """Wait until it is told that it has a load balancer of its own."""
    (own,) = [
        balancer["id"] for balancer in stage.cloud.load_balancers.values() if balancer["tags"]
    ]

    async def told():
        return (await stage.service())["metadata"]["annotations"].get(ID) == own

    await stage.until(told)


async def _run(stage):
    await stage.set_slice("a", "10.62.0.5", "10.62.0.6", ports=PORTS)
    await stage.add_service("web", HTTP)
    await stage.until_shown(TWO)


async def _expose(stage):
    await stage.set_slice("a", "10.62.0.5", ports=[("http", 8080)])
    await stage.add_endpoints("web")  # late ones would have their state after the status
    await stage.add_service("web", HTTP, endpoints=False, type="LoadBalancer", **RANGES)
    await until_condition(stage, READY, "True")
    await stage.until_published()


LIVES = (served, given_another_port, waited_for, turned_away, exposed, followed, attached)
