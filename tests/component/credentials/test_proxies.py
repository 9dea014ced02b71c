"""Which proxy requests to the API server take, and that no ~/.netrc counts."""

import asyncio
import base64
import json

import pytest

from kuryr_k8s.k8s.api import KubeApi
from kuryr_k8s.k8s.credential_files import Files
from kuryr_k8s.k8s.credentials import Credentials
from kuryr_k8s.k8s.kubeconfig import Kubeconfig

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
SERVER = "api.example.com:6443"


class Peer:
    """An API server, or a proxy before one: tells what it was asked for."""

    async def start(self):
        self.asked, self.headers = [], {}
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.place = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    def close(self):
        self._server.close()

    async def _serve(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        self.asked.append(head[0].rsplit(" ", 1)[0])
        self.headers = dict(line.split(": ", 1) for line in head[1:-2])
        refused = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n"
        writer.write(refused if head[0].startswith("CONNECT") else ANSWER)
        await writer.drain()
        writer.close()


@pytest.fixture
async def peer():
    peer = await Peer().start()
    yield peer
    peer.close()


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "REQUEST_METHOD"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    return monkeypatch.setenv


async def ask(source):
    api = KubeApi(Credentials(source))
    try:
        return await api.call("GET", "/api/v1/pods")
    finally:
        await api.close()


async def test_netrc_does_no_harm(peer, environment, tmp_path):
    (tmp_path / "netrc").write_text("default login anonymous password x\n")
    (tmp_path / "token").write_text("abc")
    environment("NETRC", str(tmp_path / "netrc"))
    assert await ask(Files(root=f"http://{peer.place}", token=tmp_path / "token")) == {}
    assert peer.headers["Authorization"] == "Bearer abc"


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy"])
@pytest.mark.parametrize("scheme", ["", "http://"])
async def test_proxy_of_the_environment_is_used(peer, environment, name, scheme):
    environment(name, scheme + peer.place)
    await ask(Files(root=f"http://{SERVER}"))
    assert peer.asked == [f"GET http://{SERVER}/api/v1/pods"]


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "https_proxy"])
async def test_proxy_of_the_environment_is_asked_for_a_tunnel(peer, environment, name, tmp_path):
    (tmp_path / "netrc").write_text("default login anonymous password x\n")
    environment("NETRC", str(tmp_path / "netrc"))
    environment(name, f"http://us:sec%2Fret@{peer.place}")
    with pytest.raises(Exception, match="502"):
        await ask(Files(root=f"https://{SERVER}", verify=False))
    assert peer.asked == [f"CONNECT {SERVER}"]
    sent = peer.headers["Proxy-Authorization"].removeprefix("Basic ")
    assert base64.b64decode(sent) == b"us:sec/ret"


@pytest.mark.parametrize("form", ["{host}", "{place}", "*", "example.com, {host}"])
@pytest.mark.parametrize("name", ["NO_PROXY", "no_proxy"])
async def test_server_that_the_environment_excepts_is_asked_itself(peer, environment, name, form):
    environment("HTTP_PROXY", "http://127.0.0.1:1")
    environment(name, form.format(host="127.0.0.1", place=peer.place))
    await ask(Files(root=f"http://{peer.place}"))
    assert peer.asked == ["GET /api/v1/pods"]


@pytest.mark.parametrize("proxy_url", ["http://{place}", None, ""])
async def test_proxy_of_the_kubeconfig_goes_first(peer, environment, tmp_path, proxy_url):
    other = "http://127.0.0.1:1" if proxy_url else f"http://{peer.place}"
    environment("HTTP_PROXY", other)
    cluster = {"server": f"http://{SERVER}"}
    if proxy_url is not None:
        cluster["proxy-url"] = proxy_url.format(place=peer.place)
    config = {
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": cluster}],
        "contexts": [{"name": "c", "context": {"cluster": "c"}}],
    }
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    await ask(Kubeconfig(tmp_path / "kubeconfig"))
    assert peer.asked == [f"GET http://{SERVER}/api/v1/pods"]
