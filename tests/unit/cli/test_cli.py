"""kuryr-k8s against small servers that speak the controller's JSON."""

import asyncio
import json
import threading

import pytest
from aiohttp import web

from kuryr_k8s import config
from kuryr_k8s.cli.local import socket_of, url_of
from kuryr_k8s.cli.main import run
from tests.kit.confs import new_socket

POOL = {
    "id": "3fa1",
    "project_id": "99887766554433221100aabbccddeeff",
    "place": "node1.example.org",
    "node": "node1",
    "network_id": "0a1b2c3d-0000-4000-8000-000000000000",
    "network_name": "pods",
    "subnet_ids": ["s4", "s6"],
    "security_groups": ["g1"],
    "available": 7,
    "parked": 5,
    "in_use": 12,
    "creating": 3,
    "returning": 1,
    "target": 10,
    "waiting": 0,
}
HOST1 = "host1_7d9e4c0a-8f5e-4b50-9c58-2c3b44a0d1aa_2050-131"  # as a controller makes it
HOST2 = "host2_00000000-8f5e-4b50-9c58-2c3b44a0d1aa_2050-131"
PORT = {"id": "port1", "mac": "fa:16:3e:00:00:01", "addresses": ["10.0.0.5", "fd00::5"]}


class Controller:
    """What the CLI speaks to; ``asked`` are the POSTs."""

    def __init__(self):
        self.leading = True
        self.asked = []

    def reading(self):
        return [
            web.get("/status", self.status),
            web.get("/pools", self.pools),
            web.get("/pools/{id}", self.pool),
        ]

    def routes(self):
        return [
            *self.reading(),
            web.post("/pools", self.change),
            web.post("/pools/{id}/populate", self.change),
            web.post("/pools/{id}/free", self.change),
        ]

    async def status(self, _request):
        lease = {"namespace": "kube-system", "name": "kuryr-k8s-controller", "transitions": 4}
        lease |= {"holder": HOST1 if self.leading else HOST2, "expires_in": 30.0}
        answer = {
            "identity": HOST1,
            "leading": self.leading,
            "lease": lease,
            "caches": {"pods": {"synced": True, "objects": 812}},
            "queues": {"vif": {"waiting": 2, "active": 1}},
            "calls": {"neutron": 3},
        }
        return web.json_response(answer)

    async def pools(self, _request):
        return web.json_response({"pools": [POOL]})

    async def pool(self, request):
        if request.match_info["id"] != POOL["id"]:
            return web.json_response({"error": "there is no such pool"}, status=404)
        return web.json_response(POOL | {"ports": [PORT | {"state": "parked"}]})

    async def change(self, request):
        self.asked.append((request.path, await request.json()))
        return web.json_response({"id": "77aa", "ports": 4})


@pytest.fixture
def serve():
    """Serve routes as the controller does, in a thread: the CLI has a loop of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    runners = []

    async def begin(routes, path):
        app = web.Application()
        app.add_routes(routes)
        runners.append(web.AppRunner(app, access_log=None, shutdown_timeout=0.1))
        await runners[-1].setup()
        if path:
            await web.UnixSite(runners[-1], str(path)).start()
            return str(path)
        await web.TCPSite(runners[-1], "127.0.0.1", 0).start()
        host, port = runners[-1].addresses[0][:2]
        return f"http://{host}:{port}"

    async def end():
        for runner in runners:
            await runner.cleanup()

    def serve(routes, path=None):
        """Serve on the path; the URL, if none is given."""
        return asyncio.run_coroutine_threadsafe(begin(routes, path), loop).result(60)

    yield serve
    asyncio.run_coroutine_threadsafe(end(), loop).result(60)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture
def controller():
    return Controller()


@pytest.fixture
def ask(serve, controller, capsys, tmp_path):
    """Run a command; (exit code, what it printed, what it complained of)."""
    conf, path = tmp_path / "kuryr.conf", new_socket()
    port = serve(controller.reading()).rpartition(":")[2]
    serve(controller.routes(), path)
    conf.write_text(f"[health_server]\nport = {port}\nadmin_socket = {path}\n")

    def ask(*words):
        code = run([*words, "--config-file", str(conf)])
        return code, *capsys.readouterr()

    return ask


def test_status_says_who_leads(ask):
    code, text, _ = ask("status")
    assert code == 0
    assert text.splitlines()[0].split() == ["leader", "host1"]
    assert "leads" in text
    assert ["pods", "812", "yes"] in [line.split() for line in text.splitlines()]
    assert ["vif", "2", "1"] in [line.split() for line in text.splitlines()]
    assert "neutron 3" in text


def test_status_of_a_standby_says_that_another_one_leads(ask, controller):
    controller.leading = False
    code, text, _ = ask("status")
    assert code == 0
    assert text.splitlines()[0].split() == ["leader", "host2"]
    assert "stands by" in text


def test_status_as_json_is_one_document(ask):
    code, text, _ = ask("status", "--json")
    report = json.loads(text)
    assert (code, report["leader"], report["controller"]["queues"]["vif"]["waiting"]) == (
        0,
        HOST1,
        2,
    )


def test_pools_are_listed_as_a_table_and_as_json(ask):
    code, text, _ = ask("pools", "list")
    head, row = (line.split() for line in text.splitlines())
    assert code == 0
    shown = dict(zip(head, row, strict=True))
    assert (shown["ID"], shown["NODE"], shown["NETWORK"]) == ("3fa1", "node1", "pods")
    assert (shown["PROJECT"], shown["IN_USE"]) == ("99887766", "12")
    assert max(map(len, text.splitlines())) < 80
    assert json.loads(ask("pools", "list", "--json")[1]) == {"pools": [POOL]}


def test_pool_whose_names_are_not_known_is_listed_with_its_host_and_a_short_id(serve, capsys):
    unnamed = POOL | {"node": "", "network_name": ""}

    async def pools(_request):
        return web.json_response({"pools": [unnamed]})

    routes = [web.get("/status", Controller().status), web.get("/pools", pools)]
    assert run(["pools", "list", "--url", serve(routes)]) == 0
    row = capsys.readouterr().out.splitlines()[1].split()
    assert row[1:3] == ["node1.example.org", "0a1b2c3d"]


def test_pool_is_shown_with_its_ports(ask):
    code, text, _ = ask("pools", "show", "3fa1")
    assert code == 0
    assert "s4, s6" in text
    assert text.splitlines()[-1].split() == [
        "port1",
        "fa:16:3e:00:00:01",
        "10.0.0.5,",
        "fd00::5",
        "parked",
    ]


CHANGES = {
    "pools populate 3fa1 --count 5": ("/pools/3fa1/populate", {"count": 5}),
    "pools populate --node node2 --count 5": (
        "/pools",
        {"node": "node2", "namespace": "default", "count": 5},
    ),
    "pools populate --node node2 --namespace web --count 5": (
        "/pools",
        {"node": "node2", "namespace": "web", "count": 5},
    ),
    "pools free 3fa1 --count 2": ("/pools/3fa1/free", {"count": 2}),
    "pools free 3fa1": ("/pools/3fa1/free", {"count": None}),
}


@pytest.mark.parametrize("words", CHANGES)
def test_change_is_asked_for_once_and_its_outcome_told(ask, controller, words):
    code, text, _ = ask(*words.split())
    assert code == 0
    assert controller.asked == [CHANGES[words]]
    assert "4 ports" in text


def test_socket_can_be_named(serve, controller, capsys):
    path = new_socket()
    serve(controller.routes(), path)
    assert run(["pools", "free", "3fa1", "--socket", str(path)]) == 0
    assert controller.asked == [("/pools/3fa1/free", {"count": None})]


@pytest.mark.parametrize(
    "words", ["pools free 3fa1 --url http://127.0.0.1:1", "status --socket x"]
)
def test_changes_go_over_the_socket_and_nothing_else_does(words, capsys):
    with pytest.raises(SystemExit) as end:
        run(words.split())
    assert end.value.code == 2


def test_socket_that_is_not_there_is_one_line(capsys, tmp_path):
    assert run(["pools", "free", "3fa1", "--socket", str(tmp_path / "none")]) == 1
    told = capsys.readouterr().err
    assert told.startswith(f"kuryr-k8s: no kuryr-k8s-controller answers at {tmp_path}/none")
    assert told.count("\n") == 1


def test_user_who_may_not_use_the_socket_is_told_who_may(capsys, monkeypatch):
    async def denied(*_args, **_kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(asyncio.AbstractEventLoop, "create_unix_connection", denied)
    monkeypatch.setattr(asyncio.SelectorEventLoop, "create_unix_connection", denied)
    assert run(["pools", "free", "3fa1", "--socket", "/run/it"]) == 1
    assert capsys.readouterr().err == (
        "kuryr-k8s: only root and the user of the controller may use /run/it\n"
    )


def test_pools_of_a_standby_are_refused_and_the_leader_named(ask, controller):
    controller.leading = False
    code, text, complaint = ask("pools", "free", "3fa1")
    assert (code, text, controller.asked) == (1, "", [])
    assert complaint == (
        "kuryr-k8s: the controller of this host stands by; host2 leads: ask there\n"
    )


def test_controllers_own_words_of_refusal_are_told(ask):
    code, _, complaint = ask("pools", "show", "none")
    assert (code, complaint) == (1, "kuryr-k8s: there is no such pool\n")


def test_controller_without_pools_is_told_from_one_without_this_pool(serve, controller, capsys):
    url = serve([web.get("/status", controller.status)])
    assert run(["pools", "list", "--url", url]) == 1
    assert "has it a pool driver?" in capsys.readouterr().err


def test_no_controller_is_one_line(capsys):
    assert run(["pools", "list", "--url", "http://127.0.0.1:1"]) == 1
    told = capsys.readouterr().err
    assert told.startswith("kuryr-k8s: no kuryr-k8s-controller answers at http://127.0.0.1:1")
    assert told.count("\n") == 1


def test_status_without_a_controller_says_so_and_fails(capsys):
    assert run(["status", "--url", "http://127.0.0.1:1"]) == 1
    assert "no kuryr-k8s-controller answers" in capsys.readouterr().out


def test_something_else_that_answers_is_found_out(serve, capsys):
    async def hello(_request):
        return web.Response(text="hello")

    assert run(["pools", "list", "--url", serve([web.get("/status", hello)])]) == 1
    assert "is not a kuryr-k8s-controller" in capsys.readouterr().err


def test_missing_configuration_is_one_line_and_exit_code_2(capsys, tmp_path):
    assert run(["status", "--config-file", str(tmp_path / "none.conf")]) == 2
    assert capsys.readouterr().err.startswith("kuryr-k8s: ")


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8082"),
        ("0.0.0.0", "http://127.0.0.1:8082"),
        ("::", "http://[::1]:8082"),
        ("10.1.2.3", "http://10.1.2.3:8082"),
        ("fd00::7", "http://[fd00::7]:8082"),
    ],
)
def test_controller_is_asked_where_it_listens(tmp_path, address, url):
    path = tmp_path / "kuryr.conf"
    path.write_text(f"[health_server]\naddress = {address}\n")
    assert url_of(config.read([f"--config-file={path}"], "test")) == url


def test_controller_is_told_of_changes_at_the_path_in_its_configuration(tmp_path):
    path = tmp_path / "kuryr.conf"
    path.write_text("[health_server]\nadmin_socket = /run/elsewhere.sock\n")
    conf = config.read([f"--config-file={path}"], "test")
    assert str(socket_of(conf)) == "/run/elsewhere.sock"
