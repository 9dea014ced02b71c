"""What is read of a Pod's readiness gate."""

import pytest

from kuryr_k8s.model.pod import Pod
from tests.kit.gated_pods import GATE

OTHER = "example.org/approved"


def pod(
    gates=(GATE,),
    true=(),
    addresses=("10.62.0.5", "FD62:0::5"),
    reason="ReadinessGatesNotReady",
    **meta,
):
    """A Pod; ``reason``: why it is not Ready."""
    ready = "Ready" in true
    not_ready = {"type": "Ready", "status": "False"} | ({"reason": reason} if reason else {})
    return Pod.read(
        {
            "metadata": {"namespace": "default", "name": "web", "uid": "u", "resourceVersion": "1"}
            | meta,
            "spec": {"readinessGates": [{"conditionType": gate} for gate in gates]},
            "status": {
                "conditions": [
                    *({"type": kind, "status": "True"} for kind in true),
                    *(() if ready else (not_ready,)),
                ],
                "podIPs": [{"ip": address} for address in addresses],
            },
        }
    )


@pytest.mark.parametrize("gates", [(), (OTHER,)])
def test_pod_without_our_gate_has_none(gates):
    assert pod(gates, true=("ContainersReady", "Ready")).gate is None


@pytest.mark.parametrize(
    ("gates", "true", "expected"),
    [
        ((GATE,), (), False),
        ((GATE,), ("Initialized", "PodScheduled"), False),
        ((GATE,), ("ContainersReady",), True),
        ((GATE,), ("ContainersReady", GATE), True),
        ((OTHER, GATE), ("ContainersReady",), False),
        ((OTHER, GATE), ("ContainersReady", OTHER), True),
        ((OTHER, GATE), (OTHER,), False),
    ],
)
def test_pod_is_to_be_a_member_once_nothing_else_keeps_it_from_being_ready(gates, true, expected):
    assert pod(gates, true).is_gated is expected
    assert pod(gates, true, deletionTimestamp="2026-01-01T00:00:00Z").is_gated is False


@pytest.mark.parametrize(
    ("true", "reason", "expected"),
    [
        (("ContainersReady", GATE), "ReadinessGatesNotReady", True),  # the kubelet has not seen it
        (("ContainersReady", GATE, "Ready"), None, True),
        (("ContainersReady", GATE), None, False),  # the node is lost
        (("ContainersReady", GATE), "PodCompleted", False),
        (("ContainersReady",), None, False),
    ],
)
def test_pod_is_taken_for_ready_only_by_the_word_of_its_kubelet(true, reason, expected):
    assert pod(true=true, reason=reason).is_gated is expected


def test_pod_of_which_nothing_is_said_is_no_member():
    item = {
        "metadata": {"namespace": "default", "name": "web", "uid": "u", "resourceVersion": "1"},
        "spec": {"readinessGates": [{"conditionType": GATE}]},
    }
    assert Pod.read(item).is_gated is False


def test_pod_without_an_address_is_no_member_yet():
    assert pod(true=("ContainersReady",), addresses=()).is_gated is False


def test_gate_is_passed_if_its_condition_is_true():
    assert not pod(true=("ContainersReady",)).gate.passed
    assert pod(true=(GATE,)).gate.passed


def test_labels_are_kept_for_pods_with_the_gate():
    gated = pod(labels={"app": "web", "tier": "front"})
    assert gated.gate.labels == {("app", "web"), ("tier", "front")}
    assert gated.addresses == ("10.62.0.5", "fd62::5")
