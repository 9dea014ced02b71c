"""How the audit tells requests apart: a stage of its own, so its judgement is tested here."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tests.audit import audit_log, grants
from tests.kit.node_credentials import AGENT
from tests.kit.paths import ETC

RBAC = ETC / "rbac"
NOON = "2026-01-01T12:00:00.000000Z"
DAEMON = "system:serviceaccount:kube-system:kuryr-daemon"


def entry(verb, resource, *, user=DAEMON, code=200, decision="allow", message="", **about):
    return {
        "auditID": f"{verb} {resource} {about}",
        "requestURI": "/",
        "verb": verb,
        "user": {"username": user},
        "objectRef": {"resource": resource, **about},
        "responseStatus": {"code": code, "message": message},
        "requestReceivedTimestamp": NOON,
        "stageTimestamp": NOON,
        "annotations": {"authorization.k8s.io/decision": decision},
    }


def read(tmp_path, *entries, since=audit_log.BEGINNING):
    log = tmp_path / "audit.log"
    lines = [json.dumps(event, separators=(",", ":")) + "\n" for event in entries]
    log.write_text("".join(lines) + '{"torn')
    return audit_log.requests(log, since)


@pytest.mark.parametrize("words", audit_log.ABOUT_OBJECTS)
def test_refusal_of_one_object_is_not_a_lack_of_permission(tmp_path, words):
    by_admission, by_role, odd = read(
        tmp_path,
        entry("create", "kuryrports", code=403, message=f"unable to create it {words}"),
        entry("get", "pods", code=403, decision="forbid", message=f"no, {words}"),
        entry("patch", "pods", code=403, message="node restriction"),
    )
    assert not by_admission.refused
    assert by_role.refused
    assert odd.refused


def test_only_our_accounts_and_only_this_run_count(tmp_path):
    others = entry("list", "pods", user="kubernetes-admin")
    assert read(tmp_path, others) == []
    ours = entry("get", "nodes")
    assert len(read(tmp_path, ours, ours | {"stage": "ResponseStarted"})) == 1
    assert read(tmp_path, ours, since=datetime(2026, 1, 2, tzinfo=UTC)) == []


def test_attempts_of_the_test_with_a_stolen_token_do_not_count(tmp_path):
    attempt = entry("delete", "nodes", code=403) | {"userAgent": AGENT}
    assert read(tmp_path, attempt) == []


def test_rotated_part_of_the_log_counts(tmp_path):
    (tmp_path / "audit-2026-01-01T11-00-00.000.log").write_text(
        json.dumps(entry("patch", "nodes"), separators=(",", ":")) + "\n"
    )
    assert {request.verb for request in read(tmp_path, entry("get", "nodes"))} == {"get", "patch"}


def test_grant_covers_its_namespace_name_and_subresource_alone(tmp_path):
    granted = grants.shipped(RBAC)
    group = {"apiGroup": "coordination.k8s.io"}
    controller = DAEMON.replace("daemon", "controller")

    def covered(verb, resource, user=DAEMON, **about):
        (request,) = read(tmp_path, entry(verb, resource, user=user, **about))
        return any(grant.covers(request) for grant in granted)

    ours = {"namespace": "kube-system", "name": "kuryr-k8s-controller"} | group
    assert covered("update", "leases", controller, **ours)
    assert covered("patch", "leases", controller, **ours)
    assert not covered("update", "leases", **ours)
    assert not covered("update", "leases", controller, **ours | {"name": "another"})
    assert not covered("update", "leases", controller, **ours | {"namespace": "default"})
    assert covered("patch", "kuryrports", subresource="status", apiGroup="openstack.org")
    assert not covered("patch", "kuryrports", subresource="scale", apiGroup="openstack.org")


def test_verbs_of_the_version_before_and_of_no_option_of_the_lab_are_granted_and_need_no_use():
    granted = grants.shipped(RBAC)
    excepted = grants.OF_THE_VERSION_BEFORE | grants.NOT_ON_THE_LAB | grants.OF_AN_APPLY
    assert granted >= excepted
    assert grants.unused(granted, {}) == granted - excepted
    assert grants.unused(granted, dict.fromkeys(granted, 1)) == set()


def test_server_that_starts_may_refuse_until_one_before_it_has_granted_and_answered(tmp_path):
    (refused,) = read(tmp_path, entry("list", "pods", code=403, decision="forbid"))
    (granted,) = read(tmp_path, entry("list", "nodes"))
    second = timedelta(seconds=1)
    begin = refused.when + 3 * second
    start = audit_log.Start(begin, begin + second)

    def covers(answered):
        other = replace(granted, when=refused.when + second, answered=answered)
        return start.covers(refused, [refused, other])

    assert covers(begin + second)  # it queued until the permissions were read
    assert not covers(begin - second)


@pytest.mark.parametrize(
    ("verb", "query"),
    [("list", "limit=500&resourceVersion=0"), ("watch", "sendInitialEvents=true&watch=true")],
)
def test_server_has_its_permissions_once_its_informers_were_answered(tmp_path, verb, query):
    """Those of Kubernetes 1.35 and newer begin with a watch."""
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    server = {"username": "system:apiserver", "uid": "a"}
    asked = entry(verb, "clusterroles") | {"user": server, "requestURI": f"{path}?{query}"}
    repair = entry("list", "clusterroles") | {"user": server, "requestURI": path}
    log = tmp_path / "audit.log"
    seconds = ("12:00:01", "12:00:09", "12:05:00")
    moments = [NOON.replace("12:00:00", text) for text in seconds]
    events = [
        asked | {"stage": "ResponseStarted", "stageTimestamp": moments[0]},
        repair | {"stage": "ResponseComplete", "stageTimestamp": moments[1]},
    ]
    if verb == "watch":
        events.append(asked | {"stage": "ResponseComplete", "stageTimestamp": moments[2]})
    log.write_text("".join(json.dumps(event, separators=(",", ":")) + "\n" for event in events))
    (start,) = audit_log.starts(log, audit_log.BEGINNING)
    assert start.loaded == datetime.fromisoformat(moments[0])
