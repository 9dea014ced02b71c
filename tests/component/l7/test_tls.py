"""TLS on the L7 router: certificates reach Octavia by Barbican, and nothing is served without."""

import asyncio

import pytest

from kuryr_k8s.errors import ConfigError
from kuryr_k8s.handlers.l7.router import L7RouterHandler
from kuryr_k8s.k8s.resources import TLSSECRETS
from kuryr_k8s.model.certificate import read_certificate
from tests.component.l7.test_ingress import ONE, TWO, two_backends
from tests.component.l7.test_trouble import OFTEN, SOON, is_told
from tests.kit.confs import MARK
from tests.kit.fakes.faults import answer
from tests.kit.tls import HOSTILE, make_pair, make_secret, names_in, serial_in, serial_of

TLS = {"l7_router": {"tls": "true"}}
SECRETS = "/key-manager/v1/secrets"
TO_A = (308, "https://a")
MORE = {"10.62.0.5", "10.62.0.7"}


async def add_shop(routers, *hosts, name="shop", secret="cert", to="one", **how):
    """An Ingress whose hosts ask for TLS."""
    tls = [{"hosts": list(hosts), **({"secretName": secret} if secret else {})}]
    rules = [(host, ("Prefix", "/", to)) for host in hosts]
    return await routers.add_ingress(name, *rules, tls=tls, **how)


async def served_over_tls(routers):
    """Have an Ingress served with the certificate of a Secret «cert» for its host; return that."""
    certificate = await routers.add_secret("cert", "a")
    await add_shop(routers, "a")
    await routers.until_address("shop")
    await routers.until_shown(certificate)
    return certificate


async def until_secure(routers, expected):
    """Wait until requests are answered so: {(host, path, port): answer}."""

    async def answered():
        fronts = {
            each["protocol_port"] for tree in routers.routers() for each in tree["listeners"]
        }
        return all(
            request[2] in fronts and routers.answer(*request) == answer
            for request, answer in expected.items()
        )

    await routers.until(answered)


def listener_over_tls(routers):
    """The listener as Octavia has it."""
    listeners = routers.cloud.octavia.store._by_kind["listener"].values()
    [found] = [each for each in listeners if each["protocol_port"] == 443]
    return found


async def test_host_is_served_over_tls_with_its_certificate_and_plain_http_leads_there(routers):
    await two_backends(routers)
    certificate = await routers.add_secret("cert", "a")
    async with routers.controller(**TLS):
        await add_shop(routers, "a")
        await routers.add_ingress("plain", ("b", ("Prefix", "/", "two")))
        assert await routers.until_address("shop")
        await until_secure(
            routers,
            {
                ("a", "/", 443): ONE,
                ("a", "/", 80): TO_A,
                ("b", "/", 80): TWO,
                ("b", "/", 443): 503,
            },
        )
        await routers.until_shown(certificate)
    [secret] = routers.cloud.barbican.secrets.values()
    assert names_in(secret["payload"]) == {"a"}
    assert secret["name"].startswith(f"{MARK}:")
    assert secret["project_id"] == routers.cloud.project_id
    assert not await routers.events()


async def test_renewed_certificate_replaces_the_former_one_without_a_moment_without(routers):
    await two_backends(routers)
    await routers.add_secret("cert", "a")
    async with routers.controller(**TLS):
        await add_shop(routers, "a")
        await routers.until_address("shop")
        gone = []
        cloud = routers.cloud

        def look():
            [tree] = routers.routers()
            https = [each for each in tree["listeners"] if each["protocol_port"] == 443]
            if not https or len(routers.shown()) != 1 or routers.answer("a", "/", 443) != ONE:
                gone.append(tree)

        watching = cloud.faults.add(
            action=_looking(look), method=None, path="lbaas|secrets", times=None
        )
        renewed = await routers.renew("cert", "a")
        await routers.until_shown(renewed)
        watching.remove()
        assert not gone
        assert watching.hits


def _looking(look):
    async def action(_request, proceed):
        response = await proceed()
        look()
        return response

    return action


async def test_restart_stores_and_changes_nothing(routers):
    await two_backends(routers)
    certificate = await routers.add_secret("cert", "a")
    async with routers.controller(**TLS):
        await add_shop(routers, "a")
        await routers.until_shown(certificate)
        await routers.until_address("shop")
    before = len(routers.octavia_calls()), dict(routers.cloud.barbican.secrets)
    async with routers.controller(**TLS):
        await routers.until(routers.is_published)
        await routers.add_ingress("other", ("b", ("Prefix", "/", "one")))
        await routers.until_address("other")
    assert len(routers.octavia_calls()) == before[0] + 2  # the policy of the other and its rule
    assert routers.cloud.barbican.secrets == before[1]


async def test_members_follow_their_pods_while_very_many_certificates_are_stored(routers):
    await two_backends(routers)
    names = [f"c{number}" for number in range(8)]
    certificates = [await routers.add_secret(name, f"{name}.com") for name in names]
    async with routers.controller(patience={"storing": 0.1}, **TLS):
        await routers.add_ingress("plain", ("b", ("Prefix", "/", "one")))
        await routers.until_answered({("b", "/"): ONE})
        [one] = list(routers.cloud.octavia.store._by_kind["pool"])
        routers.cloud.faults.add(action=slow, method="POST", path=SECRETS, times=None)
        for name in names:
            await add_shop(routers, f"{name}.com", name=name, secret=name, to="two")
        await routers.set_slice("one", *MORE, ports=[("http", 8080)], service="one")
        await routers.until_shown(*certificates)
        await routers.until_answered({("b", "/"): MORE})
    paths = [write.path for write in routers.cloud.faults.writes]
    stored = [number for number, path in enumerate(paths) if path == SECRETS]
    changed = [number for number, path in enumerate(paths) if path.endswith(f"/{one}/members")]
    assert stored[0] < changed[-1] < stored[-1]
    shown = [path for path in paths[stored[0] :] if path.endswith("/listeners")]
    assert len(shown) == 1  # with all certificates at once


async def slow(_request, proceed):
    await asyncio.sleep(0.2)
    return await proceed()


async def test_host_more_in_the_domain_of_a_wildcard_with_tls_costs_one_call_more(routers):
    await two_backends(routers)
    certificate = await routers.add_secret("cert", "*.a.com")
    async with routers.controller(**TLS):
        await add_shop(routers, "*.a.com")
        await routers.add_ingress("first", ("x.a.com", ("Prefix", "/", "two")))
        await routers.until_shown(certificate)
        served = {
            ("x.a.com", "/", 80): TWO,
            ("x.a.com", "/", 443): 403,
            ("z.a.com", "/", 80): 403,
            ("z.a.com", "/", 443): ONE,
        }
        await until_secure(routers, served)
        before = len(routers.octavia_calls())
        await routers.add_ingress("second", ("y.a.com", ("Prefix", "/", "two")))
        await until_secure(
            routers, served | {("y.a.com", "/", 80): TWO, ("y.a.com", "/", 443): 403}
        )
        await routers.until_address("second")
        added = routers.octavia_calls()[before:]
    rules = "/l7policies/{policy_id}/rules"
    of_hosts = [("POST", "/l7policies"), ("POST", rules)] * 2  # also at port 443, for the 403
    assert sorted(added) == sorted([*of_hosts, ("PUT", f"{rules}/{{id}}")])


async def test_host_without_its_certificate_is_closed_until_there_is_one(routers):
    await two_backends(routers)
    async with routers.controller(**TLS):
        await add_shop(routers, "a")
        note = await routers.until_event("KuryrIngressUnserved")
        assert f"Secret {routers.namespace}/cert: there is no such Secret" in note
        await routers.until_answered({("a", "/"): 403})
        assert await routers.address("shop") is None
        assert len(routers.routers()[0]["listeners"]) == 1
        certificate = await routers.add_secret("cert", "a")
        await routers.until_address("shop")
        await until_secure(routers, {("a", "/", 443): ONE, ("a", "/", 80): TO_A})
        await routers.until_shown(certificate)


async def test_broken_certificate_closes_its_host_alone(routers):
    await two_backends(routers)
    await routers.add_secret("good", "b")
    await routers.client.create(make_secret("cert", routers.namespace, b"no", b"pem"))
    async with routers.controller(**TLS):
        await add_shop(routers, "a")
        await add_shop(routers, "b", name="other", secret="good", to="two")
        await until_secure(
            routers, {("b", "/", 443): TWO, ("a", "/", 443): 403, ("a", "/", 80): 403}
        )
        note = await routers.until_event("KuryrIngressUnserved")
        assert "tls.crt has no certificates" in note


async def test_two_hosts_have_their_certificates_and_a_deleted_ingress_takes_its_own_along(
    routers,
):
    await two_backends(routers)
    first, second = await routers.add_secret("a", "a"), await routers.add_secret("b", "b")
    async with routers.controller(**TLS):
        await add_shop(routers, "a", name="one", secret="a")
        await routers.until_address("one")
        await add_shop(routers, "b", name="two", secret="b", to="two")
        await routers.until_shown(first, second)
        await until_secure(routers, {("a", "/", 443): ONE, ("b", "/", 443): TWO})
        await routers.delete_ingress("one")
        await routers.until_shown(second)
        await until_secure(routers, {("a", "/", 443): 503, ("b", "/", 443): TWO})
        await routers.delete_ingress("two")

        async def ended():
            return not routers.cloud.barbican.secrets

        await routers.until(ended)
        assert [each["protocol_port"] for each in routers.routers()[0]["listeners"]] == [80]


async def test_default_certificate_is_for_those_who_name_none(routers):
    await two_backends(routers)
    default = await routers.add_secret("default", "*.corp")
    more = {"default_certificate": f"{routers.namespace}/default"}
    async with routers.controller(l7_router=TLS["l7_router"] | more):
        await routers.until_shown(default)
        await add_shop(routers, "x.corp", secret="")
        await until_secure(
            routers,
            {("x.corp", "/", 443): ONE, ("x.corp", "/", 80): (308, "https://x.corp")},
        )


async def test_default_certificate_without_tls_is_an_error_of_the_configuration(routers):
    with pytest.raises(ExceptionGroup) as raised:
        async with routers.controller(l7_router={"default_certificate": "ns/name"}):
            pass
    assert raised.group_contains(ConfigError, match="it needs tls = true")


async def test_without_the_option_hosts_are_served_in_plain_http_and_that_is_told(routers):
    await two_backends(routers)
    async with routers.controller():
        await add_shop(routers, "a")
        await routers.until_answered({("a", "/"): ONE})
        assert "it is not enabled" in await routers.until_event("KuryrIngressUnserved")


@pytest.mark.parametrize("status", [500, 403])
async def test_barbican_that_stores_nothing_closes_new_hosts_alone(routers, status):
    await two_backends(routers)
    first = await routers.add_secret("a", "a")
    async with routers.controller(patience=SOON, **TLS):
        await add_shop(routers, "a", name="one", secret="a")
        await routers.until_shown(first)
        fault = routers.cloud.faults.add(
            action=answer(status), method="POST", path="/secrets$", times=None
        )
        second = await routers.add_secret("b", "b")
        await add_shop(routers, "b", name="two", secret="b", to="two")
        await routers.add_ingress("three", ("c", ("Prefix", "/", "two")))
        await until_secure(
            routers, {("a", "/", 443): ONE, ("c", "/", 80): TWO, ("b", "/", 443): 403}
        )
        assert await routers.address("two") is None
        told = await routers.until_event("KuryrIngressUnserved")
        assert told.endswith("Barbican or Octavia does not take its certificate: ask the operator")
        fault.remove()
        await routers.until_address("two")
        await routers.until_shown(first, second)
        await until_secure(routers, {("a", "/", 443): ONE, ("b", "/", 443): TWO})


async def test_former_certificate_is_shown_until_barbican_stores_the_renewed_one(routers):
    await two_backends(routers)
    async with routers.controller(patience=SOON, **TLS):
        first = await served_over_tls(routers)
        fault = routers.cloud.faults.add(
            action=answer(500), method="POST", path="/secrets$", times=None
        )
        second = await routers.renew("cert", "a")

        async def struck():
            return fault.hits > 1

        await routers.until(struck)
        await routers.until_shown(first)
        assert routers.answer("a", "/", 443) == ONE
        fault.remove()
        await routers.until_shown(second)


async def test_nothing_is_changed_without_barbican_which_octavia_reads_for_any_change(routers):
    await two_backends(routers)
    async with routers.controller(**TLS):
        first = await served_over_tls(routers)
    routers.cloud.barbican.is_away = True
    before = len(routers.octavia_calls())
    async with routers.controller(patience=SOON, **TLS):
        await routers.add_ingress("other", ("b", ("Prefix", "/", "two")))
        asked = routers.cloud.calls.count("GET", SECRETS)

        async def asks_again():
            return routers.cloud.calls.count("GET", SECRETS) > asked + 1

        await routers.until(asks_again)
        assert len(routers.octavia_calls()) == before
        assert routers.answer("a", "/", 443) == ONE
        routers.cloud.barbican.is_away = False
        await routers.until_address("other")
        await routers.until_shown(first)


async def test_listener_that_octavia_gave_up_without_barbican_comes_back_with_its_policies(
    routers,
):
    await two_backends(routers)
    octavia = routers.cloud.octavia
    async with routers.controller(patience=SOON, **TLS, **OFTEN):
        first = await served_over_tls(routers)
        await routers.until_settled_router(policies=2, pools=1)
        policies = {*octavia.store._by_kind["l7policy"]}
        listener = listener_over_tls(routers)
        routers.cloud.barbican.is_away = True
        octavia.set_error(listener["id"])
        asked = routers.cloud.calls.count("GET", SECRETS)

        async def asks_again():
            return routers.cloud.calls.count("GET", SECRETS) > asked + 1

        await routers.until(asks_again)
        assert listener["provisioning_status"] == "ERROR"
        routers.cloud.barbican.is_away = False

        async def mended():
            return listener["provisioning_status"] == "ACTIVE"

        await routers.until(mended)
        await routers.until_shown(first)
        assert {*octavia.store._by_kind["l7policy"]} == policies


@pytest.mark.parametrize("text", ["unknown_curve", "unknown_feature"])
async def test_certificate_that_makes_no_sense_harms_no_other_host(routers, text):
    await two_backends(routers)
    certificates, key = HOSTILE[text]()
    await routers.client.create(make_secret("bad", routers.namespace, certificates, key))
    async with routers.controller(**TLS):
        await add_shop(routers, "a", secret="bad")
        await routers.add_ingress("other", ("b", ("Prefix", "/", "two")))
        await routers.until_answered({("b", "/"): TWO, ("a", "/"): 403})
        assert "bad" in await routers.until_event("KuryrIngressUnserved")


async def test_default_secret_that_a_cache_lacks_keeps_its_certificate(routers):
    await two_backends(routers)
    default = await routers.add_secret("default", "*.corp")
    more = {"default_certificate": f"{routers.namespace}/default"}
    async with routers.controller(l7_router=TLS["l7_router"] | more) as app:
        await add_shop(routers, "x.corp", secret="")
        await routers.until_address("shop")
        await routers.until_shown(default)
        [handler] = [each for each in app.handlers if isinstance(each, L7RouterHandler)]
        cache = handler._context.informers.of(TLSSECRETS)
        await routers.lose(cache, routers.secret_path("default"), until="get")
        assert routers.answer("x.corp", "/", 443) == ONE
        await routers.until_shown(default)


async def test_default_certificate_that_cannot_be_used_is_reported_on_the_cluster(routers):
    more = {"default_certificate": f"{routers.namespace}/none"}
    async with routers.controller(l7_router=TLS["l7_router"] | more):
        await routers.until(lambda: is_told(routers, "[l7_router] default_certificate: Secret"))


async def test_secret_of_barbican_that_somebody_deletes_is_stored_again(routers):
    await two_backends(routers)
    certificate = await routers.add_secret("cert", "a")
    async with routers.controller(**TLS, **OFTEN):
        await add_shop(routers, "a")
        await routers.until_shown(certificate)
        # Octavia would never end any other change that comes before it is stored again
        await routers.until_address("shop")
        await routers.until_settled_router(policies=2, pools=1)
        cloud = routers.cloud
        other = read_certificate("s", *make_pair("a")).bundle
        stranger = cloud.barbican.add(cloud.project_id, "of somebody else", other)
        [ours] = [each for each in cloud.barbican.secrets if each != stranger]
        del cloud.barbican.secrets[ours]
        listener = listener_over_tls(routers)["id"]
        cloud.octavia.set_error(listener)

        async def mended():
            return len(routers.shown()) == 1

        await routers.until(mended)
        await until_secure(routers, {("a", "/", 443): ONE})
        assert listener in cloud.octavia.store._by_kind["listener"]  # it never went
        assert stranger in cloud.barbican.secrets


async def test_secret_that_a_cache_lacks_keeps_its_certificate(routers):
    await two_backends(routers)
    certificate = await routers.add_secret("cert", "a")
    async with routers.controller(**TLS) as app:
        await add_shop(routers, "a")
        await routers.until_address("shop")
        await routers.until_shown(certificate)
        [handler] = [each for each in app.handlers if isinstance(each, L7RouterHandler)]
        cache = handler._context.informers.of(TLSSECRETS)
        await routers.lose(cache, routers.secret_path("cert"), until="get")
        assert routers.answer("a", "/", 443) == ONE
        await routers.until_shown(certificate)


async def test_secret_made_again_with_another_type_is_no_certificate(routers):
    await two_backends(routers)
    await routers.add_secret("cert", "a")
    async with routers.controller(**TLS):
        await add_shop(routers, "a")
        await routers.until_address("shop")
        await routers.client.delete(routers.secret_path("cert"))
        await routers.add_secret("cert", "a", kind="Opaque")
        await routers.until_answered({("a", "/"): 403})

        async def ended():
            return not routers.cloud.barbican.secrets

        await routers.until(ended)
        assert await routers.address("shop") is not None  # names in DNS stay


async def test_router_that_people_delete_takes_its_certificates_along(routers):
    await two_backends(routers)
    certificate = await routers.add_secret("cert", "a")
    async with routers.controller(**TLS) as app:
        await add_shop(routers, "a")
        await routers.until_shown(certificate)
        [handler] = [each for each in app.handlers if isinstance(each, L7RouterHandler)]
        handler._routing.release()

        async def ended():
            return not routers.routers() and not routers.cloud.barbican.secrets

        await routers.until(ended)


async def test_full_barbican_loses_what_is_unused_and_takes_the_new_certificate(routers):
    await two_backends(routers)
    first, second = await routers.add_secret("a", "a"), await routers.add_secret("b", "b")
    async with routers.controller(patience=SOON, **TLS):
        await add_shop(routers, "a", name="one", secret="a")
        await add_shop(routers, "b", name="two", secret="b", to="two")
        await routers.until_shown(first, second)
        routers.cloud.barbican.quota = 2
        third = await routers.add_secret("c", "c")
        await add_shop(routers, "c", name="three", secret="c", to="two")
        await routers.until(lambda: is_told(routers, "a quota has been reached"))
        await routers.delete_ingress("two")
        await routers.until_shown(first, third)
        assert await routers.until_address("three")


@pytest.mark.parametrize("status", [400, 403])
async def test_former_certificate_goes_though_octavia_refuses_the_pool_of_another(routers, status):
    await two_backends(routers)
    await routers.add_secret("cert", "a")
    async with routers.controller(patience=SOON, **TLS):
        await add_shop(routers, "a")
        await routers.until_address("shop")
        message = "Quota has been met for resources: Pool" if status == 403 else "bad"
        fault = routers.cloud.faults.add(
            action=answer(status, message=message), method="POST", path="/pools$", times=None
        )
        await routers.add_ingress("bad", ("b", ("Prefix", "/", "two")))
        renewed = await routers.renew("cert", "a")
        await routers.until_shown(renewed)
        assert fault.hits
        assert routers.answer("a", "/", 443) == ONE


async def test_certificate_of_a_change_that_does_not_end_stays_when_users_are_told(routers):
    await two_backends(routers)
    await routers.add_secret("cert", "a")
    octavia = routers.cloud.octavia
    longest = {"neutron_defaults": {"lbaas_activation_timeout": "1"}}
    patience = SOON | {"first_refused": 0.5, "pending_load_balancer": 0.5}
    async with routers.controller(patience=patience, **TLS, **longest):
        await add_shop(routers, "a")
        await routers.until_address("shop")
        octavia.progress.pending = float("inf")
        second = await routers.renew("cert", "a")

        async def named():
            return listener_over_tls(routers)["provisioning_status"] == "PENDING_UPDATE"

        await routers.until(named)
        await routers.until(lambda: is_told(routers, "has been PENDING for more than"))
        third = await routers.renew("cert", "a")

        def stored():
            return {serial_in(each["payload"]) for each in routers.cloud.barbican.secrets.values()}

        async def stores():
            return serial_of(third) in stored()

        await routers.until(stores)
        asked = routers.cloud.calls.count("GET", SECRETS)

        async def ends_and_lists_again():
            return routers.cloud.calls.count("GET", SECRETS) > asked + 1

        await routers.until(ends_and_lists_again)
        assert {serial_of(second), serial_of(third)} <= stored()
        octavia.progress.pending = 0
        octavia.progress.finish(*routers.cloud.load_balancers)
        await routers.until_shown(third)


FORMER = "does not take its new certificate, so that the former one is shown"


async def told_times(routers, text):
    """How many Events on objects of the namespace say this."""
    return sum(text in note for _, note in await routers.events())


async def test_ingress_whose_renewed_certificate_barbican_does_not_take_is_told_so_once(routers):
    await two_backends(routers)
    first = await routers.add_secret("cert", "a")
    async with routers.controller(patience=SOON, **TLS):
        await add_shop(routers, "a")
        address = await routers.until_address("shop")
        await routers.until_shown(first)
        routers.cloud.barbican.quota = 1
        second = await routers.renew("cert", "a")
        assert FORMER in await routers.until_event("KuryrIngressUnserved")
        stores = routers.cloud.calls.count("POST", SECRETS)

        async def tried_again():
            return routers.cloud.calls.count("POST", SECRETS) > stores + 1

        await routers.until(tried_again)
        assert await told_times(routers, FORMER) == 1
        assert await routers.address("shop") == address
        assert routers.answer("a", "/", 443) == ONE
        await routers.until_shown(first)
        routers.cloud.barbican.quota = -1
        await routers.until_shown(second)


async def test_ingress_whose_renewed_certificate_octavia_does_not_take_is_told_so_once(routers):
    await two_backends(routers)
    async with routers.controller(patience=SOON, **TLS):
        await served_over_tls(routers)
        former = set(routers.cloud.barbican.secrets)
        fault = refuse_certificates(routers, lambda key, _: key not in former)
        second = await routers.renew("cert", "a")
        assert FORMER in await routers.until_event("KuryrIngressUnserved")

        async def refused_again():
            return fault.hits > 3

        await routers.until(refused_again)
        assert await told_times(routers, FORMER) == 1
        assert routers.answer("a", "/", 443) == ONE
        fault.remove()
        await routers.until_shown(second)


def refuse_certificates(routers, is_bad):
    """Have Octavia refuse listeners with such secrets of Barbican; the fault."""
    barbican = routers.cloud.barbican

    async def refuse(request, proceed):
        body = await request.text()
        named = [barbican.ref(key) for key, each in barbican.secrets.items() if is_bad(key, each)]
        bad = next((ref for ref in named if ref in body), "")
        if not bad:
            return await proceed()
        message = f"Could not retrieve certificate: ['{bad}']"
        return await answer(400, message=message)(request, proceed)

    faults = routers.cloud.faults
    return faults.add(action=refuse, method="PUT", path="/listeners/", times=None)


@pytest.mark.parametrize("is_busy", [False, True], ids=["idle", "busy"])
async def test_certificate_that_octavia_does_not_take_holds_up_no_other(routers, is_busy):
    """Also where there is something else to do."""
    await two_backends(routers)
    async with routers.controller(**TLS):
        await served_over_tls(routers)
    renewed = await routers.renew("cert", "a")
    bad = serial_of(await routers.add_secret("bad", "b"))
    fault = refuse_certificates(routers, lambda _, each: serial_in(each["payload"]) == bad)
    await add_shop(routers, "b", name="bad", secret="bad")
    if is_busy:
        await routers.set_slice("one", *MORE, ports=[("http", 8080)], service="one")
    async with routers.controller(patience=SOON, **TLS):

        async def shown():
            return serial_of(renewed) in map(serial_in, routers.shown())

        await routers.until(shown)
        await until_secure(routers, {("a", "/", 443): MORE if is_busy else ONE})
        assert fault.hits
