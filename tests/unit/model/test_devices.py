"""The devices that a Pod requests, and those that its node names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kuryr_k8s.model.device import Device
from kuryr_k8s.model.pod import Pod
from kuryr_k8s.model.resource_claim import AllocatedDevice, allocated
from tests.kit.kube.objects import make_pod

VF = "intel.com/vf"


def container(sidecar=False, **requested):
    restart = {"restartPolicy": "Always"} if sidecar else {}
    return {"name": "c", "image": "i", "resources": {"requests": requested}} | restart


def devices(containers, init=()):
    item = make_pod("web", containers=containers, initContainers=list(init))
    item["metadata"] |= {"uid": "u", "resourceVersion": "1"}
    return dict(Pod.read(item).devices)


@pytest.mark.parametrize(
    ("containers", "init", "expected"),
    [
        ([container()], [], {}),
        ([container(cpu="1", memory="1Gi", **{"hugepages-2Mi": "2Mi"})], [], {}),
        ([container(**{VF: "2"}), container(**{VF: "1", "a.org/b": "7"})], [],
         {VF: 3, "a.org/b": 7}),
        ([container(**{VF: "1"})], [container(**{VF: "3"})], {VF: 1}),
        ([container(**{VF: "2"})], [container(sidecar=True, **{VF: "1"})], {VF: 3}),
        ([container(**{VF: "1"})],
         [container(sidecar=True, **{VF: "1"}), container(**{VF: "4"})], {VF: 2}),
        ([container(**{VF: "0"})], [], {}),
        ([container(**{VF: "1k"})], [], {VF: 0}),
        ([container(**{VF: "1"}), container(**{VF: "1k"})], [], {VF: 0}),
        ([container()], [container(sidecar=True, **{VF: "1k"})], {VF: 0}),
    ],
    ids=["none", "of the kubelet", "sum", "init", "sidecar", "beside a sidecar", "zero",
         "no number", "one is no number", "no number of a sidecar"],
)  # fmt: skip
def test_containers_that_stay_count_as_the_kubelet_tells_their_devices(containers, init, expected):
    assert devices(containers, init) == expected


def test_only_claims_that_a_container_uses_count():
    uses = {"name": "c", "image": "i", "resources": {"claims": [{"name": "a"}, {"name": "b"}]}}
    claims = [
        {"name": "a", "resourceClaimName": "own"},
        {"name": "b", "resourceClaimTemplateName": "template"},
        {"name": "unused", "resourceClaimName": "other"},
    ]
    item = make_pod("web", containers=[uses], resourceClaims=claims)
    item["metadata"] |= {"uid": "u", "resourceVersion": "1"}
    assert Pod.read(item).claims == ("own",)
    item["status"] = {"resourceClaimStatuses": [{"name": "b", "resourceClaimName": "made"}]}
    assert Pod.read(item).claims == ("made", "own")


GOOD = {"physnet": "p", "pciSlot": "0000:03:10.1", "pciVendorInfo": "8086:10ed"}


def test_device_is_read_as_it_was_written():
    assert Device.read(GOOD).write() == GOOD


@pytest.mark.parametrize(
    "change",
    [
        {"pciSlot": "../../etc/passwd"},
        {"pciSlot": "0000:03:10.1\n"},
        {"pciSlot": "0000:03:10.9"},
        {"pciVendorInfo": "8086"},
        {"pciVendorInfo": ""},
    ],
    ids=repr,
)
def test_what_is_no_device_is_not_read(change):
    assert Device.read(GOOD | change) is None


@given(st.fixed_dictionaries({}, optional={name: st.text() for name in GOOD}))
def test_no_text_of_a_node_breaks_the_reader(fields):
    read = Device.read(fields)
    assert read is None or read.write() == {"physnet": "", **fields}


def test_devices_of_a_claim_bear_the_class_of_their_request():
    requests = [
        {"name": "one", "exactly": {"deviceClassName": "fast"}},
        {"name": "any", "firstAvailable": [{"name": "slow", "deviceClassName": "lame"}]},
    ]
    results = [
        {"request": name, "driver": "d", "pool": "n", "device": name}
        for name in ("one", "any/slow", "unknown")
    ]
    claim = {
        "spec": {"devices": {"requests": requests}},
        "status": {"allocation": {"devices": {"results": results}}},
    }
    assert allocated(claim) == [
        AllocatedDevice(device_class=kind, driver="d", pool="n", name=name)
        for kind, name in (("fast", "one"), ("lame", "any/slow"), ("", "unknown"))
    ]
    assert allocated({"spec": {}}) == []
