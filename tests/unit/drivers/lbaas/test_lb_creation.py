"""The first call creates as much of a load balancer as Octavia takes."""

from kuryr_k8s.cloud.octavia import bodies
from kuryr_k8s.drivers.lbaas.creation import fitting_body
from kuryr_k8s.model.load_balancer import L7Policy, L7Rule, Listener
from tests.kit.lbaas.plans import listener, pool, wanted


def policy(host, namespace):
    return L7Policy(
        name=f"Ingress {namespace}/{host}",
        action="REDIRECT_TO_POOL",
        rules=(L7Rule("HOST_NAME", "EQUAL_TO", host),),
        redirect_pool=host,
        host=host,
        namespace=namespace,
    )


def router(*policies):
    ports = [
        Listener(name=name, protocol="HTTP", port=port, pool="", policies=policies)
        for name, port in (("https", 443), ("http", 80))
    ]
    return wanted(*ports, *(pool(each.redirect_pool, "HTTP") for each in policies))


def hosts(body, number):
    return [each["rules"][0]["value"] for each in body["listeners"][number]["l7policies"]]


def test_hosts_of_the_first_call_are_as_many_as_it_can_hold_and_have_their_pools():
    policies = [policy(f"{number:04}.example.com", "many") for number in range(1000)]
    body = fitting_body(router(*policies, policy("shop.com", "few")), ())
    assert not bodies.is_too_large(body)
    assert len(hosts(body, 0)) + len(hosts(body, 1)) > 200
    pools = {each["name"] for each in body["pools"]}
    assert {*hosts(body, 0), *hosts(body, 1)} == pools
    assert hosts(body, 0)[-1] == hosts(body, 1)[-1] == "shop.com"
    assert [each["position"] for each in body["listeners"][0]["l7policies"]] == [
        *range(1, len(hosts(body, 0)) + 1)
    ]
    number = len(hosts(body, 0)) + len(hosts(body, 1))
    one_more = router(*policies[: number // 2 + 1], policy("shop.com", "few"))
    assert bodies.is_too_large(bodies.create_body(one_more))


def test_body_with_all_parts_is_sent_whole_if_it_fits():
    whole = router(policy("a.com", "one"), policy("b.com", "two"))
    assert fitting_body(whole, ()) == bodies.create_body(whole, ())


def test_load_balancer_whose_pool_alone_is_too_large_comes_without_parts():
    members = [f"10.{number // 250}.{number % 250}.1" for number in range(2000)]
    body = fitting_body(wanted(listener(), pool(members=members)), ())
    assert body["listeners"] == []
    assert "pools" not in body
