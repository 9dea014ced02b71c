"""Octavia's policies serve each request as the text of Kubernetes says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kuryr_k8s.drivers.l7 import plan as plan_module
from kuryr_k8s.drivers.l7.plan import plan
from kuryr_k8s.model.load_balancer import REDIRECT_TO_POOL, REJECT, TURNS
from kuryr_k8s.model.routes import Forward, Host, Path, Redirect, Reject, Route
from tests.kit.lbaas import l7_rules

# -- what Octavia does


def taken(policies, host, path):
    """The action of the first policy that takes a request, in the order of haproxy's template."""
    for turn in TURNS:
        for policy in policies:
            if policy.action == turn and policy.rules and l7_rules.all_match(policy, host, path):
                return action_of(policy)
    return None


def action_of(policy):
    if policy.action == REDIRECT_TO_POOL:
        return Forward(policy.redirect_pool)
    if policy.action == REJECT:
        return Reject()
    return Redirect(policy.redirect_prefix, policy.redirect_http_code)


# -- what Kubernetes says


def wanted(routes, host, path):
    """The action for a request, by comparing it with each route in turn."""
    host = host.partition(":")[0].lower()
    found = [
        (host_rank(route, host), path_rank(route, path), route.created, route.name, route.action)
        for route in routes
    ]
    found = [each for each in found if each[0] is not None and each[1] is not None]
    return min(found, key=lambda each: each[:4])[4] if found else None


def host_rank(route, host):
    """How specifically the route is for the host, less is more; None: it is not."""
    name = route.said_host
    if not name:
        return 2
    if not name.startswith("*."):
        return 0 if name == host else None
    label, dot, rest = host.partition(".")
    return 1 if label and dot and rest == name[2:] else None


def path_rank(route, path):
    kind, said = route.said_path
    if kind == "Exact":
        return (0, 0) if path == said else None
    asked, has = path.split("/")[1:], said.split("/")[1:]
    if has and has[-1] == "":
        has.pop()  # a trailing slash is ignored
    return (1, -len(has)) if asked[: len(has)] == has else None


class Said(Route):
    """A route, and what its user wrote."""

    __slots__ = ("said_host", "said_path")


def route(name, host, kind, path, action, created):
    made = Said(
        name=name,
        host=Host(host),
        path=Path.exact(path) if kind == "Exact" else Path.prefix(path),
        action=action,
        created=created,
    )
    object.__setattr__(made, "said_host", host)
    object.__setattr__(made, "said_path", (kind, path))
    return made


HOSTS = ["", "a.com", "b.a.com", "c.a.com", "*.a.com", "*.b.a.com", "x.b.a.com", "*.com", "a-com"]
PATHS = ["/", "/foo", "/foo/", "/foo/bar", "/foobar", "/foo.bar", "/foo//bar", "//", "/f+(o)$"]
ODD = ["/a&b", "/it's", '/q"q', "/a<b>", "/%2fx", "/$x{1}", "/`x`", "/a\\b", "/x;y=1", "/~x"]
PATHS += ODD
ASKED = [*PATHS, "/foo/bar/x", "/fooXbar", "/foo/ba", "/x", "/foo//", "/FOO", "/f+(o)$/y"]
HOSTS_ASKED = [
    *(each for each in HOSTS if each and "*" not in each),
    "d.a.com", "y.x.b.a.com", "B.A.com", "a.com:8080", "b.a.com:1", "com", ".a.com", "aXcom",
]  # fmt: skip
ACTIONS = st.one_of(
    st.sampled_from([Forward("one"), Forward("two"), Forward("three")]),
    st.sampled_from([Redirect("https://one", 302), Redirect("https://two", 308), Reject()]),
)
ROUTES = st.lists(
    st.tuples(
        st.sampled_from(HOSTS),
        st.sampled_from(["Exact", "Prefix", "Prefix"]),
        st.sampled_from(PATHS),
        ACTIONS,
        st.sampled_from(["2026-01-01", "2026-01-02"]),
    ),
    max_size=12,
).map(lambda drawn: [route(f"route-{number}", *each) for number, each in enumerate(drawn)])


@given(ROUTES)
def test_each_request_is_served_by_the_most_specific_route(routes):
    made = plan(routes)
    for host in HOSTS_ASKED:
        for path in ASKED:
            assert taken(made.policies, host, path) == wanted(routes, host, path), (host, path)
    for policy in made.policies:
        assert len({*policy.rules}) == len(policy.rules)


@given(ROUTES, st.integers(2, 5))
def test_nobody_gets_the_requests_of_a_route_that_would_need_too_many_rules(routes, most):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan_module, "MOST_RULES", most)
        made = plan(routes)
    assert all(len(policy.rules) <= most for policy in made.policies)
    refused = {name for name, why in made.refused.items() if f"more than {most} rules" in why}
    closed = [
        route(each.name, each.said_host, *each.said_path, None, each.created)
        if each.name in refused
        else each
        for each in routes
    ]
    for host in HOSTS_ASKED:
        for path in ASKED:
            assert taken(made.policies, host, path) == wanted(closed, host, path), (host, path)


def rules_of(made):
    return [
        (policy.name, [(each.type, each.value, each.invert) for each in policy.rules])
        for policy in made.policies
    ]


def test_route_for_all_requests_has_a_policy_that_takes_what_begins_with_a_slash():
    made = plan([route("all", "", "Prefix", "/", Forward("one"), "")])
    assert rules_of(made) == [("all", [("PATH", "/", False)])]


def test_redirect_of_all_requests_has_a_rule():
    made = plan([route("all", "", "Prefix", "/", Redirect("https://one", 302), "")])
    assert rules_of(made) == [("all", [("PATH", "/", False)])]


def test_redirect_leaves_requests_to_a_more_specific_pool():
    made = plan(
        [
            route("redirect", "a.com", "Prefix", "/", Redirect("https://a.com", 302), ""),
            route("pool", "a.com", "Prefix", "/challenge", Forward("one"), ""),
        ]
    )
    host = ("HOST_NAME", r"^a\.com(:[0-9]+)?$", False)
    path = ("PATH", r"^/challenge(/.*)?$", True)
    assert rules_of(made)[0] == ("redirect", [host, path])


def test_of_two_routes_with_one_host_and_path_the_younger_one_is_refused():
    made = plan(
        [
            route("young", "a.com", "Prefix", "/", Forward("one"), "2026-01-02"),
            route("old", "a.com", "Prefix", "/", Forward("two"), "2026-01-01"),
        ]
    )
    assert [policy.name for policy in made.policies] == ["old"]
    assert made.refused == {"young": "old has the same host and path, and comes first"}


def test_a_path_that_no_rule_can_hold_is_refused():
    made = plan([route("long", "", "Exact", "/" + "x" * 255, Forward("one"), "")])
    assert (made.policies, list(made.refused)) == ((), ["long"])


def test_a_redirect_that_would_need_too_many_rules_is_refused():
    pools = [
        route(f"pool-{number:02}", "a.com", "Exact", f"/{number}", Forward("one"), "")
        for number in range(50)
    ]
    redirect = route("redirect", "a.com", "Prefix", "/", Redirect("https://a.com", 302), "")
    assert list(plan([redirect, *pools]).refused) == ["redirect"]
    assert plan([redirect, *pools[:49]]).refused == {}


def below_a_wildcard(count):
    """Routes of a wildcard that answers 403, of so many hosts of its domain, and of all hosts."""
    names = [f"shop-{number:04}" for number in range(count)]
    hosts = [
        route(name, f"{name}.apps.example.com", "Prefix", "/", Forward("one"), "")
        for name in names
    ]
    wildcard = route("wildcard", "*.apps.example.com", "Prefix", "/", Reject(), "")
    return [wildcard, *hosts, route("all", "", "Prefix", "/", Forward("two"), "")]


def test_wildcard_leaves_many_hosts_to_others_by_a_few_rules():
    routes = below_a_wildcard(500)
    made = plan(routes)
    assert not made.refused
    [rejecting] = made.of_routes["wildcard"]
    assert len(rejecting.rules) <= 40
    assert max(len(rule.value) for rule in rejecting.rules) <= 255
    asked = [*(each.said_host for each in routes[1:-1]), "x.apps.example.com", "x.com"]
    asked += ["SHOP-0123.apps.example.com:8080", "shop-012.apps.example.com", "shop-0123.x.com"]
    for host in asked:
        assert taken(made.policies, host, "/") == wanted(routes, host, "/"), host


def test_one_host_more_changes_few_rules_of_the_wildcard_that_leaves_it_to_others():
    changes = []
    former = set()
    for count in range(300, 330):
        [rejecting] = plan(below_a_wildcard(count)).of_routes["wildcard"]
        rules = {*rejecting.rules}
        changes.append(len(rules - former))
        former = rules
    assert sum(changes[1:]) <= 2 * len(changes[1:])


def test_as_few_rules_as_can_be_leave_very_many_hosts_to_others():
    [rejecting] = plan(below_a_wildcard(980)).of_routes["wildcard"]
    assert len(rejecting.rules) <= 50


def test_wildcard_that_cannot_leave_all_hosts_to_others_is_refused_and_nobody_gets_its_requests():
    made = plan(below_a_wildcard(2000))
    assert list(made.refused) == ["wildcard"]
    assert taken(made.policies, "x.apps.example.com", "/") is None
    assert taken(made.policies, "shop-0123.apps.example.com", "/") == Forward("one")
    assert taken(made.policies, "x.com", "/") == Forward("two")


def test_paths_within_one_that_a_redirect_leaves_to_others_need_no_rules():
    pools = [
        route(f"pool-{number:02}", "a.com", "Prefix", path, Forward("one"), "")
        for number, path in enumerate(["/x", *(f"/x/{number}" for number in range(60))])
    ]
    redirect = route("redirect", "a.com", "Prefix", "/", Redirect("https://a.com", 302), "")
    made = plan([redirect, *pools])
    host = ("HOST_NAME", r"^a\.com(:[0-9]+)?$", False)
    assert rules_of(made)[0] == ("redirect", [host, ("PATH", "^/x(/.*)?$", True)])


def test_a_path_that_no_request_contains_as_it_is_is_refused():
    made = plan([route("umlaut", "", "Exact", "/\u00fc", Forward("one"), "")])
    assert (made.policies, list(made.refused)) == ((), ["umlaut"])
