"""`make soak`: which Pods count as failed."""

import pytest

from lab.churn.lives import Life
from lab.soak.batches import failures

NOW = 1000.0


@pytest.mark.parametrize(
    ("times", "said"),
    [
        pytest.param({"ready": 59.0}, None, id="Ready in time"),
        pytest.param({"ready": 61.0}, "was not Ready after 61 s", id="Ready too late"),
        pytest.param({}, "was not Ready after 1000 s", id="never Ready"),
        pytest.param({"deleted": 5.0, "gone": 8.0}, None, id="deleted while it started"),
        pytest.param(
            {"deleted": 70.0, "gone": 71.0}, "was not Ready after 70 s", id="deleted too late"
        ),
        pytest.param({"ready": 3.0, "deleted": 5.0, "gone": 64.0}, None, id="gone in time"),
        pytest.param(
            {"ready": 3.0, "deleted": 5.0, "gone": 66.0}, "was not gone after 61 s", id="late"
        ),
        pytest.param({"ready": 3.0, "deleted": 5.0}, "was not gone after 995 s", id="never gone"),
        pytest.param({"ready": 3.0, "deleted": 990.0}, None, id="still going"),
    ],
)
def test_what_does_not_come_in_time_is_a_failure(times, said):
    life = Life("soak-1", 1, 0.0, **times)
    assert failures([life], NOW) == ([] if said is None else [f"Pod soak-1 {said}"])
