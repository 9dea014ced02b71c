"""Who is woken when a port is released that the Pod which waited longest cannot use."""

from kuryr_k8s.handlers.pods.starved import StarvedPods
from kuryr_k8s.k8s.resources import Key

LARGE, SMALL, OTHER = Key("a", "large"), Key("a", "small"), Key("a", "other")


def starved():
    pods = StarvedPods()
    for key in (LARGE, SMALL, OTHER):
        pods.add(key, "project")
    return pods


def test_pod_that_cannot_use_what_was_released_passes_it_on():
    pods = starved()
    assert pods.take_first() == [LARGE]
    pods.add(LARGE, "project")
    assert pods.pass_on(LARGE, "project") == [SMALL]


def test_pods_that_all_need_more_wake_each_other_once():
    pods = starved()
    woken = pods.take_first()
    count = 0
    while woken:
        count += 1
        (key,) = woken
        pods.add(key, "project")
        woken = pods.pass_on(key, "project")
    assert count == 3
    assert pods.take_first() == [LARGE]
    pods.add(LARGE, "project")
    assert pods.pass_on(LARGE, "project") == [SMALL]
