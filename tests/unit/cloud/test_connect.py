"""What the libraries beneath say, as our errors."""

import pytest
import requests
from keystoneauth1 import exceptions as ksa

from kuryr_k8s import errors
from kuryr_k8s.cloud.connect import ServiceAdapter
from kuryr_k8s.k8s.events import words_for_users

REFUSED = (
    "HTTPConnectionPool(host='neutron', port=9696): Max retries exceeded with url: /v2.0/ports "
    "(Caused by NewConnectionError('<urllib3.connection.HTTPConnection object at {}>: "
    "Failed to establish a new connection: [Errno 111] Connection refused'))"
)


class Failing:
    """A connection of the SDK whose every use fails, in words that differ each time."""

    def __init__(self, *failures):
        self._failures = iter(failures)

    @property
    def network(self):
        raise next(self._failures)


def notes(*failures):
    adapter = ServiceAdapter(Failing(*failures), "network")
    noted = []
    for _ in failures:
        with pytest.raises(errors.CloudError) as caught:
            adapter.request("/ports", "GET")
        noted.append(words_for_users(caught.value, failures=9))
    return noted


@pytest.mark.parametrize(
    "failures",
    [
        [requests.ConnectionError(REFUSED.format(where)) for where in ("0x7f3c", "0x7f3d")],
        [ksa.ServiceUnavailable(request_id=f"req-{number}") for number in range(2)],
        [ksa.Unauthorized("who?", request_id=f"req-{number}") for number in range(2)],
    ],
    ids=["connection", "unavailable", "unauthorized"],
)
def test_failure_that_repeats_is_told_in_the_same_words(failures):
    first, second = notes(*failures)
    assert first == second
    assert "0x" not in first[1]
