"""What people change by hand in the cloud is as before after the next review of the router.

Its addresses stay, but for a floating IP that is deleted itself: Neutron gives nobody but an
administrator the same one again.
"""

import pytest

from tests.component.l7.test_ingress import ONE, TWO, two_backends
from tests.component.l7.test_tls import until_secure
from tests.component.l7.test_trouble import OFTEN
from tests.kit.confs import NODE
from tests.kit.fakes.octavia.kinds import L7POLICY, L7RULE, LISTENER, MEMBER, POOL

OPTIONS = OFTEN | {"l7_router": {"tls": "true"}}
STRANGER = "10.62.0.99"


class Hands:
    """What is in the router, for people who change it in Octavia's tables."""

    def __init__(self, routers):
        self.octavia, self.cloud = routers.cloud.octavia, routers.cloud
        self.store = routers.cloud.octavia.store

    def parts(self, kind, **fields):
        return [
            part
            for part in self.store.of(kind).values()
            if all(part[name] == value for name, value in fields.items())
        ]

    def part(self, kind, **fields):
        return self.parts(kind, **fields)[0]

    def listener(self, port):
        return self.part(LISTENER, protocol_port=port)

    def pool(self, service):
        [found] = [each for each in self.parts(POOL) if f"/{service}:" in each["name"]]
        return found

    def policy(self, service):
        return self.part(L7POLICY, redirect_pool_id=self.pool(service)["id"])

    def rule(self, service):
        return self.store.rules(self.policy(service)["id"])[0]

    def member(self, service):
        [found] = self.store.members(self.pool(service)["id"])
        return found

    def change(self, part, **fields):
        self.store.change(part, fields)

    def add(self, kind, like, **fields):
        """One more of the kind, like another one."""
        body = {name: value for name, value in like.items() if name not in ("id", "created_at")}
        self.store.set_status(self.store.add(kind, body | fields), "ACTIVE")


CHANGES = {
    "policy deleted": lambda hands: hands.octavia.remove(hands.policy("one")["id"]),
    "policy disabled": lambda hands: hands.change(hands.policy("two"), admin_state_up=False),
    "policy led elsewhere": lambda hands: hands.change(
        hands.policy("two"), redirect_pool_id=hands.pool("one")["id"]
    ),
    "policy that rejects": lambda hands: hands.change(
        hands.policy("two"), action="REJECT", redirect_pool_id=None
    ),
    "policy of a stranger": lambda hands: hands.add(
        L7POLICY, hands.policy("two"), name="theirs", position=1
    ),
    "redirect elsewhere": lambda hands: hands.change(
        hands.part(L7POLICY, action="REDIRECT_PREFIX"), redirect_prefix="https://evil.example"
    ),
    "rule deleted": lambda hands: hands.octavia.remove(hands.rule("two")["id"]),
    "rule disabled": lambda hands: hands.change(hands.rule("two"), admin_state_up=False),
    "rule changed": lambda hands: hands.change(hands.rule("two"), value="other"),
    "rule added": lambda hands: hands.add(L7RULE, hands.rule("two"), value="other"),
    "policy and pool deleted": lambda hands: [  # Octavia deletes no pool that policies lead to
        hands.octavia.remove(part["id"]) for part in (hands.policy("two"), hands.pool("two"))
    ],
    "pool changed": lambda hands: hands.change(
        hands.pool("two"), lb_algorithm="LEAST_CONNECTIONS"
    ),
    "member deleted": lambda hands: hands.octavia.remove(hands.member("one")["id"]),
    "member changed": lambda hands: hands.change(hands.member("one"), weight=0),
    "member added": lambda hands: hands.add(MEMBER, hands.member("one"), address=STRANGER),
    "listener deleted": lambda hands: hands.octavia.remove(hands.listener(80)["id"]),
    "listener over TLS deleted": lambda hands: hands.octavia.remove(hands.listener(443)["id"]),
    "listener with a pool": lambda hands: hands.change(
        hands.listener(80), default_pool_id=hands.pool("one")["id"]
    ),
    "listener without headers": lambda hands: hands.change(hands.listener(80), insert_headers={}),
    "listener for some": lambda hands: hands.change(
        hands.listener(80), allowed_cidrs=["192.0.2.0/24"]
    ),
    "listener added": lambda hands: hands.add(
        LISTENER, hands.listener(80), name="theirs", protocol_port=8080
    ),
    "secret deleted": lambda hands: hands.cloud.barbican.secrets.popitem(),
    "floating IP led nowhere": lambda hands: next(iter(hands.cloud.floating_ips.values())).update(
        port_id=None, fixed_ip_address=None
    ),
}


async def furnished(routers):
    """An Ingress with TLS and one without are served; the trees of that."""
    await two_backends(routers)
    certificate = await routers.add_secret("cert", "a")
    tls = [{"hosts": ["a"], "secretName": "cert"}]
    await routers.add_ingress("shop", ("a", ("Prefix", "/", "one")), tls=tls)
    await routers.add_ingress("open", ("b", ("Prefix", "/x", "two")))
    for name in ("shop", "open"):
        await routers.until_address(name)
    await routers.until_shown(certificate)
    await until_secure(
        routers,
        {("a", "/", 443): ONE, ("a", "/", 80): (308, "https://a"), ("b", "/x", 80): TWO},
    )
    return certificate


def addresses(routers):
    """The VIP, and the floating IP that leads there."""
    [router] = routers.cloud.load_balancers.values()
    [floating_ip] = routers.cloud.floating_ips.values()
    led = floating_ip["port_id"] == router["vip_port_id"]
    return router["vip_address"], floating_ip["floating_ip_address"] if led else None


@pytest.mark.parametrize("what", CHANGES)
async def test_what_people_change_by_hand_is_as_before_after_the_review(routers, what):
    async with routers.controller(**OPTIONS):
        certificate = await furnished(routers)
        before = routers.trees(), addresses(routers)
        [router] = routers.cloud.load_balancers
        CHANGES[what](Hands(routers))

        async def as_before():
            return (routers.trees(), addresses(routers)) == before

        assert not await as_before()
        await routers.until(as_before)
        await routers.until_shown(certificate)
        assert [router] == list(routers.cloud.load_balancers)


async def test_floating_ip_that_people_delete_is_replaced_and_that_is_told_everywhere(routers):
    async with routers.controller(**OPTIONS):
        await furnished(routers)
        vip, _former = addresses(routers)
        routers.cloud.floating_ips.clear()

        async def told():
            shown = {await routers.address(name) for name in ("shop", "open")}
            state = (await routers.node_state(NODE))["versioned_object.data"]["fip"]
            data = await routers.config_map()
            return (
                routers.cloud.floating_ips
                and {*shown, state, data["floating-ip"], data["address"]}
                == {addresses(routers)[1]}
                and addresses(routers)[0] == vip
            )

        await routers.until(told)
