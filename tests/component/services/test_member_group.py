"""The security group by which load balancers reach Pods: whose groups may let in nobody."""

import pytest

from tests.kit.confs import MARK, NODE
from tests.kit.fakes.faults import WRITES, cut, lose_reply

V4, V6 = ("ingress", "IPv4", "10.96.0.0/15"), ("ingress", "IPv6", "fd96::/64")
NAME = "kuryr test-cluster: from load balancers"


def ours(services):
    """The groups of that name."""
    return [
        group for group in services.cloud.store.security_groups.values() if group["name"] == NAME
    ]


def rules(services, group):
    """The group's rules."""
    every = services.cloud.store.security_group_rules.values()
    return [rule for rule in every if rule["security_group_id"] == group["id"]]


def rules_of(services, group):
    """What the group lets through."""
    return sorted(
        (rule["direction"], rule["ethertype"], rule["remote_ip_prefix"])
        for rule in rules(services, group)
    )


async def start_pod(services, name="web"):
    """The groups of a new Pod's port."""
    pod = await services.cluster.add_pod(name, node=NODE)
    await services.until_plugged_in(name)
    (port,) = services.ports_of(pod)
    return set(port["security_groups"])


async def test_pods_are_reached_from_the_subnets_of_services_and_it_opens_nothing_else(services):
    async with services.controller():
        groups = await start_pod(services)
    (group,) = ours(services)
    assert groups == {services.cloud.group["id"], group["id"]}
    assert rules_of(services, group) == [V4, V6]
    assert group["project_id"] == services.cloud.project_id
    assert group["tags"] == ["test-cluster", MARK]
    assert group["description"].startswith(f"{MARK} ")


@pytest.mark.parametrize("mark", [["kuryr-cluster:another"], []], ids=["another's", "unmarked"])
async def test_group_of_that_name_that_is_not_ours_is_left_alone(services, mark):
    group = services.cloud.add_security_group(NAME)
    services.cloud.store.change("security_group", group, {"tags": ["test-cluster", *mark]})
    before = rules_of(services, group)
    async with services.controller():
        groups = await start_pod(services)
    assert group["id"] not in groups
    assert len(groups) == 2
    assert group["tags"] == ["test-cluster", *mark]
    assert rules_of(services, group) == before


async def test_group_of_an_earlier_version_that_a_kuryrport_names_stays_the_clusters(services):
    async with services.controller():
        before = await start_pod(services)
    (group,) = ours(services)
    changes = {"tags": ["test-cluster"], "description": "Pods are reached"}
    services.cloud.store.change("security_group", group, changes)
    async with services.controller():
        assert await start_pod(services, "other") == before
    assert ours(services) == [group]
    assert MARK in group["tags"]
    assert group["description"].startswith(f"{MARK} ")


async def test_group_of_an_earlier_version_that_another_cluster_made_is_left_to_it(services):
    """Their first tag is ours, too: so both have used it."""
    tagged = {"neutron_defaults": {"resource_tags": "test-cluster,a"}}
    async with services.controller(**tagged):
        await start_pod(services)
    (group,) = ours(services)
    changes = {"tags": ["test-cluster", "b"], "description": "Pods are reached"}
    services.cloud.store.change("security_group", group, changes)
    async with services.controller(**tagged):
        groups = await start_pod(services, "other")
    assert group["id"] not in groups
    assert group["tags"] == ["test-cluster", "b"]


async def test_group_stays_ours_when_a_cluster_of_an_earlier_version_takes_its_tags(services):
    async with services.controller():
        before = await start_pod(services)
    (group,) = ours(services)
    services.cloud.store.change("security_group", group, {"tags": ["test-cluster", "b"]})
    async with services.controller():
        assert await start_pod(services, "other") == before
    assert set(group["tags"]) >= {"test-cluster", MARK}


@pytest.mark.parametrize("fault", [cut(), lose_reply()], ids=["not sent", "reply lost"])
async def test_fault_at_any_write_leaves_the_group_of_an_earlier_version_to_us(services, fault):
    """Its rules are those of subnets that Services had before."""
    async with services.controller():
        before = await start_pod(services)
    (group,) = ours(services)
    store = services.cloud.store
    earlier = {"tags": ["test-cluster"], "description": "Pods are reached"}
    for strike in range(1, 6):  # description, the new rules, two old ones that go, tags
        store.change("security_group", group, earlier)
        for number, rule in enumerate(rules(services, group)):
            store.change("security_group_rule", rule, {"remote_ip_prefix": f"10.9{number}.0.0/16"})
        services.cloud.faults.at_write(strike, fault)
        async with services.controller():
            assert await start_pod(services, f"pod-{strike}") == before
        assert ours(services) == [group]
        assert rules_of(services, group) == [V4, V6]
        assert group["tags"] == ["test-cluster", MARK]
        assert group["description"].startswith(f"{MARK} ")


async def test_pods_are_reached_while_rules_are_exchanged(services):
    async with services.controller():
        await start_pod(services)
    (group,) = ours(services)
    before = {"remote_ip_prefix": "10.9.0.0/16"}
    for rule in rules(services, group):
        services.cloud.store.change("security_group_rule", rule, before)
    services.cloud.faults.add(
        method="DELETE", path="/security-group-rules/", times=None, action=cut()
    )
    async with services.controller():
        await services.cloud.wait_for(lambda: {V4, V6} <= set(rules_of(services, group)))


async def test_service_is_not_said_to_have_it(services):
    """Its spec names the groups that decide who may connect."""
    async with services.controller():
        await start_pod(services)
        await services.add_service("web", ("http", 80))
        await services.until_published()
        spec = (await services.endpoints())["metadata"]["annotations"]
    assert services.cloud.group["id"] in str(spec)
    assert ours(services)[0]["id"] not in str(spec)


async def test_restarted_controller_finds_it_and_puts_right_what_others_changed(services):
    async with services.controller():
        before = await start_pod(services)
    (group,) = ours(services)
    store = services.cloud.store
    for rule in list(store.security_group_rules.values()):
        if rule["remote_ip_prefix"] == "fd96::/64":
            store.remove("security_group_rule", rule)
    everybody = rule | {"id": "everybody", "remote_ip_prefix": "0.0.0.0/0"}
    store.security_group_rules["everybody"] = everybody | {"security_group_id": group["id"]}
    async with services.controller():
        assert await start_pod(services, "other") == before
    assert ours(services) == [group]
    assert rules_of(services, group) == [V4, V6]


@pytest.mark.parametrize("fault", [cut(), lose_reply()], ids=["not sent", "reply lost"])
async def test_fault_at_any_write_leaves_one_group(services, fault):
    async with services.controller():
        await start_pod(services)
    kinds = [
        call.what.rpartition("/v2.0/")[2]
        for call in services.cloud.calls
        if call.method in WRITES and "/v2.0/" in call.what
    ]
    number = next(at for at, kind in enumerate(kinds) if kind == "ports")
    assert number == 5, kinds  # the group, the rules that come, its two that go, the tags
    store = services.cloud.store
    for strike in range(1, number + 1):
        for group in ours(services):
            for port in list(store.ports.values()):
                store.remove("port", port)
            for rule in list(store.security_group_rules.values()):
                if rule["security_group_id"] == group["id"]:
                    store.remove("security_group_rule", rule)
            store.remove("security_group", group)
        services.cloud.faults.at_write(strike, fault)
        async with services.controller():
            groups = await start_pod(services, f"pod-{strike}")
        (group,) = ours(services)
        assert group["id"] in groups
        assert rules_of(services, group) == [V4, V6]
        assert group["tags"] == ["test-cluster", MARK]
    assert group["description"].startswith(f"{MARK} ")


async def test_pods_of_other_projects_may_use_it(services):
    cloud = services.cloud
    other = cloud.add_project("other")
    cloud.share(cloud.pods["id"], other)
    theirs = {"object_type": "security_group", "action": "access_as_shared"}
    theirs |= {"object_id": cloud.group["id"], "target_tenant": other}
    cloud.store.add("rbac_policy", theirs | {"project_id": cloud.project_id})
    path = f"/api/v1/namespaces/{services.cluster.namespace}"
    mark = {"metadata": {"annotations": {"openstack.org/kuryr-project": other}}}
    await services.client.patch(path, mark)
    driver = {"pod_project_driver": "annotation"}
    policy = {"projects": f"{services.cluster.namespace}:{other}"}
    async with services.controller(kubernetes=driver, policy=policy):
        groups = await start_pod(services)
    (group,) = ours(services)
    assert group["id"] in groups
    policies = cloud.store.rbac_policys.values()
    shared = [
        rbac_policy["target_tenant"]
        for rbac_policy in policies
        if rbac_policy["object_id"] == group["id"]
    ]
    assert shared == [other]


@pytest.mark.parametrize(
    "options",
    [
        {"octavia_defaults": {"member_security_group": "false"}},
        {"kubernetes": {"enabled_handlers": "vif,kuryrport"}},
    ],
    ids=["not wanted", "no Services"],
)
async def test_pods_have_the_operators_groups_alone(services, options):
    async with services.controller(**options):
        groups = await start_pod(services)
    assert groups == {services.cloud.group["id"]}
    assert not ours(services)
