"""Load balancers for plans, in short; and plans carried out in the model of Octavia."""

from kuryr_k8s.drivers.lbaas import plan as lb_plan
from kuryr_k8s.model.load_balancer import HealthMonitor, Listener, LoadBalancer, Member, Pool
from tests.kit.lbaas.differences import differences
from tests.kit.lbaas.octavia_model import OctaviaModel

MONITOR = HealthMonitor(type="TCP", delay=5, timeout=3, max_retries=1, max_retries_down=3)


def pool(name="web", protocol="TCP", *, members=("10.2.0.1",), **values):
    some = tuple(Member(address=address, port=8080) for address in members)
    return Pool(name=name, protocol=protocol, lb_algorithm="ROUND_ROBIN", members=some, **values)


def listener(name="web", port=80, protocol="TCP", **values):
    return Listener(name=f"default/{name}", protocol=protocol, port=port, pool=name, **values)


def wanted(*parts, **values):
    return LoadBalancer(
        name="default/web",
        project_id="project",
        vip_subnet_id="services",
        vip_address=values.pop("vip_address", "10.3.0.1"),
        provider=values.pop("provider", None),
        tags=("cluster", "kuryr-service:u1"),
        listeners=tuple(part for part in parts if isinstance(part, Listener)),
        pools=tuple(part for part in parts if isinstance(part, Pool)),
    )


def router(*listeners):
    """A load balancer with a listener for each list of policies, and the pools where they lead."""
    named = [policy.redirect_pool for some in listeners for policy in some if policy.redirect_pool]
    return LoadBalancer(
        name="router",
        project_id="project",
        vip_subnet_id="services",
        vip_address="10.3.0.1",
        provider="amphora",
        listeners=tuple(
            Listener(
                name=f"port-{port}", protocol="HTTP", port=port, pool="", policies=tuple(some)
            )
            for port, some in enumerate(listeners, start=80)
        ),
        pools=tuple(pool(name, "HTTP") for name in dict.fromkeys(named)),
    )


def next_step(desired, found):
    """None if everything is as desired."""
    return next(lb_plan.steps(desired, found), None)


def carry_out(desired, found):
    """The steps until nothing is left to do; each brings it nearer."""
    octavia, steps = OctaviaModel(found), []
    left = differences(desired, found)
    while (step := next_step(desired, octavia.found)) is not None:
        octavia.apply(step)
        steps.append(step)
        before, left = left, differences(desired, octavia.found)
        assert left < before, steps
    assert left == 0, steps
    return steps


def kinds(steps):
    return [type(step).__name__ for step in steps]
