"""Which Services select a Pod."""

import pytest

from kuryr_k8s.handlers.services.selectors import Selectors
from kuryr_k8s.k8s.resources import Key
from kuryr_k8s.model.pod import Pod
from tests.kit.gated_pods import GATES
from tests.kit.service_objects import service

HTTP = ("http", 80)
WEB = Key("default", "web")


def pod(namespace="default", addresses=("10.62.0.5",), **labels):
    meta = {"namespace": namespace, "name": "p", "uid": "u", "resourceVersion": "1"}
    return Pod.read(
        {
            "metadata": meta | {"labels": labels},
            "spec": {"readinessGates": GATES},
            "status": {"podIPs": [{"ip": address} for address in addresses]},
        }
    )


def selecting(**how):
    selectors = Selectors()
    selectors.note(WEB, None, service(HTTP, **how))
    return selectors


def test_service_selects_pods_with_all_labels_of_its_selector():
    selectors = selecting(selector={"app": "web", "tier": "front"})
    assert selectors.of(pod(app="web", tier="front", more="x")).keys() == {WEB}
    assert not selectors.of(pod(app="web"))
    assert not selectors.of(pod(app="web", tier="back"))
    assert not selectors.of(pod("other", app="web", tier="front"))


@pytest.mark.parametrize(
    "how",
    [
        {"selector": None},
        {"addresses": ("None",)},
        {"type": "ExternalName", "addresses": ()},
        {"labels": {"service.kubernetes.io/service-proxy-name": "other"}},
    ],
    ids=["no selector", "headless", "ExternalName", "another's"],
)
def test_service_that_is_none_of_ours_selects_nothing(how):
    assert not selecting(**how).of(pod(app="web"))


def test_pod_without_an_address_of_the_services_family_is_none_of_its_endpoints():
    six = selecting(addresses=("fd96::10",))
    assert not six.of(pod(app="web"))
    assert six.of(pod(app="web", addresses=("10.62.0.5", "fd62::5")))


def test_changed_and_deleted_services_are_followed():
    selectors = Selectors()
    first, second = service(HTTP), service(HTTP, selector={"app": "api"})
    selectors.note(WEB, None, first)
    selectors.note(WEB, first, second)
    assert not selectors.of(pod(app="web"))
    assert selectors.of(pod(app="api")) == {WEB: second}
    selectors.note(WEB, second, None)
    assert not selectors.of(pod(app="api"))
