"""Lists that go on where they stopped."""

import contextlib
import json

import pytest
import requests

from kuryr_k8s import errors
from kuryr_k8s.cloud.page_size import PAGE
from kuryr_k8s.cloud.paging import Reading, read_all
from kuryr_k8s.cloud.transport import Transport

PATH = "/lbaas/pools"
ROWS = 7


class Server:
    """Stands for the SDK and a server with so many pools, which may fail or forget any.

    ``refuse`` gets the query, and returns a status in place of a page.
    """

    def __init__(self, most=2):
        self.rows = [f"id{number}" for number in range(ROWS)]
        self.pages = []  # the marker and the objects of each
        self.most = most
        self.refuse = lambda _query: 200

    def close(self):
        pass

    def authenticate(self):
        return "project"

    def invalidate(self):
        """Nobody revokes the token."""

    def request(self, _url, _method, *, params, **_kwargs):
        status = self.refuse(params)
        if status != 200:
            return answer(status, {"faultstring": "no"})
        if "id" in params:
            known = [{"id": each} for each in self.rows if each == params["id"]]
            return answer(200, {"pools": known})
        marker = params.get("marker")
        if marker is not None and marker not in self.rows:
            return answer(400, {"faultstring": f"marker {marker} is not valid"})
        start = self.rows.index(marker) + 1 if marker else 0
        size = min(self.most, int(params["limit"]))
        some = self.rows[start : start + size]
        self.pages.append((marker, some))
        links = [{"rel": "next"}] if len(some) == size else []
        return answer(200, {"pools": [{"id": each} for each in some], "pools_links": links})


def answer(status, body):
    response = requests.Response()
    response.status_code = status
    response._content = json.dumps(body).encode()
    return response


@pytest.fixture
def server():
    return Server()


@pytest.fixture
def transport(server):
    transport = Transport(server, limit=1)
    yield transport
    transport.close()


async def attempts(transport, reading, query):
    """Try until the list has ended; the ids, and how many attempts failed."""
    for failed in range(60):
        try:
            rows = await read_all(transport, PATH, query, reading=reading)
        except errors.CloudError:
            continue
        return [row["id"] for row in rows], failed
    raise AssertionError("it never ends")


@pytest.mark.parametrize("status", [401, 403, 500, 503, 504])
async def test_page_that_failed_is_the_next_one_and_no_other_is_read_again(
    server, transport, status
):
    attempt = iter(range(100))  # a 401 is asked again at once, with a new token
    period = 3 if status == 401 else 2
    server.refuse = lambda _query: 200 if next(attempt) % period == period - 1 else status
    reading = Reading()
    found, failed = await attempts(transport, reading, {"tags": "ours"})
    assert found == server.rows
    assert failed == len(server.pages) == 4
    assert len({marker for marker, _rows in server.pages}) == 4
    assert reading.rows == ROWS


async def test_question_whether_the_list_has_ended_is_asked_again_by_itself(server, transport):
    server.rows.pop()  # the last page is full, and an empty one follows
    checks = iter([503, 503])
    server.refuse = lambda query: next(checks, 200) if "id" in query else 200
    found, failed = await attempts(transport, Reading(), {})
    assert (found, failed) == (server.rows, 2)
    assert [len(rows) for _marker, rows in server.pages] == [2, 2, 2, 0]


async def test_lists_of_one_reading_are_told_apart_by_path_and_query(server, transport):
    reading = Reading()
    await read_all(transport, PATH, {"tags": "ours"}, reading=reading)
    await read_all(transport, PATH, {"tags": "theirs"}, reading=reading)
    assert len(server.pages) == 8
    await read_all(transport, PATH, {"tags": "ours"}, reading=reading)
    assert len(server.pages) == 8


async def test_list_goes_on_from_the_page_before_if_its_marker_is_gone(server, transport):
    def refuse(query):
        if query.get("marker") in ("id1", "id3"):
            server.rows = [each for each in server.rows if each not in ("id1", "id3")]
        return 200

    server.refuse = refuse
    found, failed = await attempts(transport, Reading(), {})
    assert failed == 1
    assert set(found) >= set(server.rows) == {"id0", "id2", "id4", "id5", "id6"}


async def test_list_begins_again_if_all_that_was_read_is_gone(server, transport):
    gone = ["id0", "id1", "id2", "id3"]

    def refuse(query):
        if query.get("marker") == "id3":
            server.rows = [each for each in server.rows if each not in gone]
        return 200

    server.refuse = refuse
    found, failed = await attempts(transport, Reading(), {})
    assert failed == 2
    assert found == [*gone, "id4", "id5", "id6"]


async def test_page_that_never_comes_in_time_is_asked_for_in_parts(server, transport):
    server.most = PAGE
    server.refuse = lambda query: 504 if int(query["limit"]) > 3 else 200
    found, _failed = await attempts(transport, Reading(), {})
    assert found == server.rows


async def test_pages_are_as_large_as_ever_after_an_outage(server, transport):
    server.most = PAGE
    down = iter([504] * 20)
    server.refuse = lambda _query: next(down, 200)
    server.rows = [f"id{number:04}" for number in range(3 * PAGE)]
    found, failed = await attempts(transport, Reading(), {})
    assert found == server.rows
    assert failed == 20
    assert len(server.pages) < 14


def too_slow_for(most):
    """Larger pages never come in time; how many were asked for stands in the list."""
    late = []

    def refuse(query):
        if int(query["limit"]) <= most:
            return 200
        late.append(query)
        return 504

    return refuse, late


async def test_list_that_begins_anew_each_time_ends_though_no_large_page_comes(server, transport):
    server.most = PAGE
    server.refuse, _late = too_slow_for(10)
    for _attempt in range(9):
        with contextlib.suppress(errors.CloudError):
            rows = await read_all(transport, PATH, {})
            break
    assert [row["id"] for row in rows] == server.rows


@pytest.mark.parametrize("most", [100, 250, 499])
async def test_size_that_failed_is_tried_again_ever_more_rarely(server, transport, most):
    server.most = PAGE
    server.refuse, late = too_slow_for(most)
    server.rows = [f"id{number:05}" for number in range(50 * most)]
    found, failed = await attempts(transport, Reading(), {})
    assert found == server.rows
    assert failed == len(late) <= 8
    late.clear()
    server.pages.clear()
    await attempts(transport, Reading(), {})
    assert len(late) <= 2, "the next list knows"
    server.refuse = lambda _query: 200
    server.pages.clear()
    await attempts(transport, Reading(), {})
    await attempts(transport, Reading(), {})
    assert max(len(rows) for _marker, rows in server.pages) == PAGE


async def test_small_pages_of_short_lists_tell_nothing_of_larger_ones(server, transport):
    server.most = PAGE
    server.refuse, late = too_slow_for(250)
    for _attempt in range(100):
        await attempts(transport, Reading(), {})
    assert len(late) == 1


async def test_lists_of_few_fields_keep_their_size(server, transport):
    server.most = PAGE
    server.refuse = lambda query: 504 if "fields" not in query else 200
    server.rows = [f"id{number:04}" for number in range(PAGE)]
    with pytest.raises(errors.CloudError):
        await read_all(transport, PATH, {})
    await read_all(transport, PATH, {"fields": ("id",)})
    assert [len(rows) for _marker, rows in server.pages] == [PAGE, 0]
