"""The order of users: who wants few hosts does not wait for who wants many."""

from dataclasses import replace

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from kuryr_k8s.drivers.l7.plan import plan
from kuryr_k8s.drivers.lbaas import plan as lb_plan
from kuryr_k8s.drivers.lbaas.steps import CreatePolicy, CreatePool
from kuryr_k8s.model.load_balancer import L7Rule
from kuryr_k8s.model.routes import Forward, Host, Path, Redirect, Reject, Route
from tests.kit.lbaas import l7_rules, plans
from tests.kit.lbaas.octavia_model import OctaviaModel, made
from tests.kit.lbaas.plans import next_step

slow = settings(suppress_health_check=list(HealthCheck), deadline=None)
HOSTS = ["", "*.a.com", "*.b.com", "x.a.com", "y.a.com", "x.b.com"]
ASKED = ["x.a.com", "y.a.com", "z.a.com", "x.b.com", "z.b.com", "c.com"]
PATHS = ["/", "/foo", "/foo/bar"]
ACTIONS = [Forward("one"), Forward("two"), Redirect("https://one", 308), Reject()]


def route(namespace, host, path="/", action=None):
    name = f"{namespace} {host} {path}"
    return Route(
        name=name,
        host=Host(host),
        path=Path.prefix(path),
        action=action or Forward(name),
        namespace=namespace,
    )


routes = st.lists(
    st.builds(
        route,
        st.sampled_from(["one", "two", "three"]),
        st.sampled_from(HOSTS),
        st.sampled_from(PATHS),
        st.sampled_from(ACTIONS),
    ),
    max_size=8,
    unique_by=lambda each: (each.host, each.path),
)


def router(*listeners):
    """A load balancer with a listener for each list of routes."""
    return plans.router(*(plan(some).policies for some in listeners))


def carried_out(desired, found):
    octavia = OctaviaModel(found)
    while (step := next_step(desired, octavia.found)) is not None:
        octavia.apply(step)
        yield step, octavia.found


def answers(found):
    """What becomes of each request."""
    return {
        (host, path): answer(found, host, path) for host in ASKED for path in [*PATHS, "/else"]
    }


def answer(found, host, path):
    return l7_rules.taken(found, lambda policy: l7_rules.all_match(policy, host, path))


@st.composite
def changes(draw):
    """A few routes, and these with one more, with one less, or with one that leads elsewhere."""
    old = draw(routes.filter(bool))[:4]
    changed, how = draw(st.sampled_from(old)), draw(st.sampled_from(["gone", "new", "other"]))
    others = [each for each in old if each is not changed]
    if how == "new":
        return others, old
    if how == "gone":
        return old, others
    return old, [*others, replace(changed, action=draw(st.sampled_from(ACTIONS)))]


@slow
@given(changes())
def test_each_request_goes_where_it_went_or_where_it_is_to_go_after_every_call(change):
    old, new = change
    before, desired = router(old), router(new)
    place = {policy.key: number for number, policy in enumerate(desired.listeners[0].policies)}
    order = [place[each.key] for each in before.listeners[0].policies if each.key in place]
    assume(order == sorted(order))
    found = made(before)
    earlier, later = answers(found), answers(made(desired))
    for step, now in carried_out(desired, found):
        for request, shown in answers(now).items():
            assert shown in (earlier[request], later[request]), (request, step)


@slow
@given(routes, routes)
def test_several_changes_come_to_their_end_and_no_request_gets_what_no_route_says(old, new):
    desired = router(new)
    found, steps = made(router(old)), 0
    for step, now in carried_out(desired, found):
        found, steps = now, steps + 1
        assert steps < 300, step
        for (host, path), shown in answers(now).items():
            fitting = [
                each
                for each in (*old, *new)
                if each.host.covers(Host(host)) and each.path.covers(Path.prefix(path))
            ]
            assert shown is None or shown in map(told, fitting), (host, path, step)
    assert answers(found) == answers(made(desired))


def told(one):
    """What a route answers."""
    action = one.action
    if isinstance(action, Forward):
        return "REDIRECT_TO_POOL", action.pool, None
    if isinstance(action, Redirect):
        return "REDIRECT_PREFIX", None, action.prefix
    return "REJECT", None, None


def winner(some, host, path):
    """The route that a request belongs to."""
    fitting = (
        each
        for each in sorted(some, key=lambda each: each.precedence)
        if each.host.covers(Host(host)) and each.path.covers(Path.prefix(path))
    )
    found = next(fitting, None)
    return found and (found.name, found.action)


@slow
@given(routes, routes, st.data())
def test_what_octavia_refuses_takes_no_request_from_a_route_that_stays(old, new, data):
    """Also where the policy of that route is to be replaced."""
    refused = {each.name for each in new if data.draw(st.booleans())}
    pools = {each.action.pool for each in new if isinstance(each.action, Forward)}
    refused |= {name for name in sorted(pools) if data.draw(st.booleans())}
    octavia = OctaviaModel(made(router(old)))
    earlier = answers(octavia.found)
    stay = [
        (host, path)
        for host, path in earlier
        if winner(old, host, path) == winner(new, host, path) is not None
    ]
    for _ in range(200):
        step = next(
            (
                each
                for each in lb_plan.steps(router(new), octavia.found)
                if not (isinstance(each, CreatePolicy) and each.policy.name in refused)
                and not (isinstance(each, CreatePool) and each.pool.name in refused)
            ),
            None,
        )
        if step is None:
            break
        octavia.apply(step)
        now = answers(octavia.found)
        for request in stay:
            assert now[request] == earlier[request], (request, step)
    else:
        raise AssertionError("there is no end to it")


def hosts_in_order(desired, found):
    """The hosts in the order in which they come to be served."""
    return [
        step.policy.host
        for step, _ in carried_out(desired, found)
        if isinstance(step, CreatePolicy)
    ]


def test_host_more_that_a_wildcard_leaves_to_others_changes_one_rule_in_its_place():
    closed = route("one", "*.a.com", action=Reject())
    hosts = [route("one", f"{each}.a.com") for each in range(12)]
    found = made(router([closed, *hosts[:-1]]))
    steps = []
    for step, now in carried_out(router([closed, *hosts]), found):
        steps.append(type(step).__name__)
        found = now
    assert steps == ["CreatePool", "SetMembers", "CreatePolicy", "CreateRule", "UpdateRule"]
    steps = [type(step).__name__ for step, _ in carried_out(router([closed, *hosts[:-1]]), found)]
    assert steps == ["UpdateRule", "DeletePolicy", "DeletePool"]


def test_rule_that_becomes_two_goes_after_the_first_of_them_is_there():
    rejecting = plan([route("one", "*.a.com", action=Reject())]).policies[0]
    whole, first, second = (
        L7Rule("HOST_NAME", "REGEX", f"^({each})\\.a\\.com(:[0-9]+)?$", invert=True)
        for each in ("x|y", "w|x", "y|z")
    )
    old, new = (
        replace(router([]), listeners=(replace(router([]).listeners[0], policies=(policy,)),))
        for policy in (
            replace(rejecting, rules=(*rejecting.rules, whole)),
            replace(rejecting, rules=(*rejecting.rules, first, second)),
        )
    )
    found = made(old)
    for step, now in carried_out(new, found):
        assert answer(now, "x.a.com", "/") is None, step
        assert answer(now, "y.a.com", "/") is None, step
    kinds = [type(step).__name__ for step, _ in carried_out(new, found)]
    assert kinds == ["CreateRule", "UpdateRule"]


def test_one_host_does_not_wait_for_the_hundred_of_another_namespace():
    many = [route("many", f"a-rather-long-name-{each}.example.com") for each in range(100)]
    few = [route("few", "b.com"), route("few", "c.com", action=Redirect("https://c.com", 308))]
    desired = router([*many, *few], [*many, *few])
    steps = carried_out(desired, made(router([], [])))
    first = [next(steps)[0] for _ in range(10)]
    created = [step for step in first if isinstance(step, CreatePolicy)]
    assert {each.policy.host for each in created} == {"b.com", "c.com"}
    assert len(created) == 4
    assert [each.pool.name for each in first if isinstance(each, CreatePool)] == ["few b.com /"]


def first_of(desired, found, number):
    """The first steps, in short."""
    steps = carried_out(desired, found)
    return [type(next(steps)[0]).__name__ for _ in range(number)]


def test_deletion_of_a_host_does_not_wait_for_the_hundred_of_another_namespace():
    many = [route("many", f"{each}.example.com") for each in range(100)]
    kept, gone = route("few", "kept.com"), route("few", "gone.com", action=Reject())
    gone = replace(gone, name="Ingress few/shop gone.com")
    found = made(router([kept, gone]))
    assert first_of(router([kept, *many]), found, 1) == ["DeletePolicy"]
    steps = [type(step).__name__ for step, _ in carried_out(router([kept, *many]), found)]
    assert steps.count("DeletePolicy") == 1


def test_hundred_deletions_hold_up_no_creation_of_another_namespace():
    many = [
        replace(route("many", f"{each}.example.com"), name=f"Ingress many/{each} host")
        for each in range(100)
    ]
    created = first_of(router([route("few", "b.com")]), made(router(many)), 3)
    assert created == ["CreatePool", "SetMembers", "CreatePolicy"]


def test_host_that_another_one_is_to_get_goes_after_it():
    gone = replace(route("few", "x.a.com"), name="Ingress few/shop x.a.com")
    wild = route("many", "*.a.com")
    steps = first_of(router([wild]), made(router([gone])), 5)
    assert steps == ["CreatePool", "SetMembers", "CreatePolicy", "CreateRule", "DeletePolicy"]


def test_host_of_two_namespaces_does_not_wait_for_the_others_of_either():
    many = [route("many", f"{each}.example.com") for each in range(10)]
    shared = [route("few", "shared.com"), route("many", "shared.com", "/x")]
    found = hosts_in_order(router([*many, *shared]), made(router([])))
    assert found[:2] == ["shared.com"] * 2


def test_wildcard_waits_for_hosts_of_its_domain_alone():
    many = [route("many", f"{each}.example.com") for each in range(10)]
    many += [route("many", "1.apps.com"), route("many", "*.example.com")]
    few = [route("few", "*.apps.com"), route("some", "*.b.com"), route("any", "")]
    found = hosts_in_order(router([*many, *few]), made(router([])))
    assert found[0] == "*.b.com"
    assert found.index("1.apps.com") < found.index("*.apps.com")
    assert found[-1] == ""
    assert found.index("*.example.com") > max(
        found.index(f"{each}.example.com") for each in range(10)
    )


def test_host_that_is_led_elsewhere_does_not_wait_for_new_ones_of_another_namespace():
    old = route("few", "b.com")
    moved = replace(old, action=Forward("other"))
    many = [route("many", f"{each}.example.com") for each in range(10)]
    steps = [step for step, _ in carried_out(router([moved, *many]), made(router([old])))]
    kinds = [type(step).__name__ for step in steps]
    assert kinds[:3] == ["CreatePool", "SetMembers", "UpdatePolicy"]
