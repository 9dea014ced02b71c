"""Credentials that others replace while a program runs: what the API server is sent."""

import asyncio
import base64
import dataclasses
import json
import math
import ssl
import tempfile
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kuryr_k8s import errors
from kuryr_k8s.k8s.api import KubeApi
from kuryr_k8s.k8s.credential_files import Files
from kuryr_k8s.k8s.credentials import Credentials
from kuryr_k8s.k8s.kubeconfig import Kubeconfig
from tests.kit.clock import ManualClock

NOW = 1_800_000_000.0
AUTHORITY = "certificate-authority-data"
PLUGIN = """#!/bin/sh
[ "$KUBERNETES_EXEC_INFO" ] && [ "$COLOUR" = red ] && [ "$1" = get-token ] || exit 3
cat "$(dirname "$0")/given"
"""


class Server:
    """Answers everything, and remembers who asked: tokens, and names in certificates."""

    def __init__(self):
        self.told, self.status, self.url = [], 200, ""

    async def start(self, *, tls=None):
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=tls).start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"{'https' if tls else 'http'}://{host}:{port}"
        return self

    async def close(self):
        await self._runner.cleanup()

    async def _answer(self, request):
        peer = request.transport.get_extra_info("peercert")
        names = dict(pair for entry in (peer or {}).get("subject", ()) for pair in entry)
        self.told.append(names.get("commonName") or request.headers.get("Authorization", ""))
        return web.json_response({}, status=self.status)


class Wall:
    """Both clocks of the host."""

    def __init__(self):
        self.steady = ManualClock()

    def now(self):
        return NOW + self.steady.now()

    def advance(self, seconds):
        self.steady.advance(seconds)


@pytest.fixture
def wall():
    return Wall()


@pytest.fixture
async def serve():
    servers = []

    async def start(**how):
        servers.append(await Server().start(**how))
        return servers[-1]

    yield start
    for server in servers:
        await server.close()


@pytest.fixture
async def use(wall):
    """Make a client with credentials of this source."""
    clients = []

    def make(source):
        credentials = Credentials(source, now=wall.now, clock=wall.steady)
        clients.append(KubeApi(credentials))
        return clients[-1]

    yield make
    for client in clients:
        await client.close()


def kubeconfig(tmp_path, server, **user):
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "tests",
        "clusters": [{"name": "tests", "cluster": {"server": server.url}}],
        "users": [{"name": "us", "user": user}],
        "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "us"}}],
    }
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(config))
    return Kubeconfig(path)


def with_plugin(tmp_path, server):
    """A kubeconfig with a plugin that prints what :func:`give` has told it."""
    program = tmp_path / "plugin"
    program.write_text(PLUGIN)
    program.chmod(0o755)
    version = "client.authentication.k8s.io/v1"
    env = [{"name": "COLOUR", "value": "red"}]
    plugin = {"apiVersion": version, "command": "./plugin", "args": ["get-token"], "env": env}
    return kubeconfig(tmp_path, server, **{"exec": plugin})


def give(tmp_path, token, expires=None):
    status = {"token": token}
    if expires is not None:
        status["expirationTimestamp"] = f"{datetime.fromtimestamp(expires, UTC):%FT%TZ}"
    (tmp_path / "given").write_text(json.dumps({"status": status}))


def jwt(expires):
    claims = base64.urlsafe_b64encode(json.dumps({"exp": expires}).encode()).decode().rstrip("=")
    return f"e30.{claims}.signature"


async def ask(client):
    await client.call("GET", "/api/v1/pods")


async def until_sent(client, server, wall, told, *, before=math.inf):
    """Ask again until the server is told this; the wall's clock does not reach ``before``."""
    async with asyncio.timeout(60):
        while not server.told or server.told[-1] != told:
            if wall.now() + 2 < before:  # a plugin takes its time, whatever that clock says
                wall.advance(2)
            await ask(client)


async def test_token_in_a_file_of_a_kubeconfig_is_the_one_of_now(tmp_path, serve, use, wall):
    server = await serve()
    (tmp_path / "token").write_text("first\n")
    client = use(kubeconfig(tmp_path, server, tokenFile="token", token="of long ago"))
    await ask(client)
    assert server.told == ["Bearer first"]
    (tmp_path / "token").write_text("second\n")
    await until_sent(client, server, wall, "Bearer second")


async def test_token_in_a_kubeconfig_that_is_replaced_is_sent(tmp_path, serve, use, wall):
    server = await serve()
    client = use(kubeconfig(tmp_path, server, token="first"))
    await ask(client)
    kubeconfig(tmp_path, server, token="second")
    await until_sent(client, server, wall, "Bearer second")


async def test_token_of_a_plugin_is_renewed_before_it_expires(tmp_path, serve, use, wall):
    server = await serve()
    client = use(with_plugin(tmp_path, server))
    give(tmp_path, "first", NOW + 600)
    for _ in range(9):
        await ask(client)
        give(tmp_path, "second", NOW + 1200)
        wall.advance(59)
    assert set(server.told) == {"Bearer first"}
    assert wall.now() < NOW + 541
    await until_sent(client, server, wall, "Bearer second", before=NOW + 600)


async def test_expired_token_of_a_plugin_is_not_sent_and_the_next_one_is(
    tmp_path, serve, use, wall
):
    server = await serve()
    client = use(with_plugin(tmp_path, server))
    give(tmp_path, "first", NOW + 600)
    await ask(client)
    (tmp_path / "given").unlink()
    for _ in range(10):
        wall.advance(120)
        with pytest.raises(errors.NoCredentials) if wall.now() >= NOW + 600 else nullcontext():
            await ask(client)
    assert server.told == ["Bearer first"] * 5
    with pytest.raises(errors.NoCredentials, match=r"plugin .* exit code 1: .*given"):
        await ask(client)
    give(tmp_path, "second", NOW + 9000)
    wall.advance(2)
    await ask(client)
    assert server.told[-1] == "Bearer second"


async def test_plugin_is_asked_again_when_the_server_refuses_its_token(tmp_path, serve, use, wall):
    server = await serve()
    client = use(with_plugin(tmp_path, server))
    give(tmp_path, "first")
    await ask(client)
    give(tmp_path, "second")
    wall.advance(3600)
    server.status = 401
    with pytest.raises(errors.KubeError, match="401"):
        await ask(client)
    server.status = 200
    await until_sent(client, server, wall, "Bearer second")


async def test_expired_token_in_a_file_is_waited_for(tmp_path, serve, use, wall):
    server = await serve()
    token = tmp_path / "token"
    client = use(Files(root=server.url, token=token))
    with pytest.raises(errors.NoCredentials, match="No such file"):
        await ask(client)
    wall.advance(2)
    token.write_text(jwt(NOW - 10))
    with pytest.raises(errors.NoCredentials, match=r"token.* has expired at 2027-01-15T07:59:50Z"):
        await ask(client)
    assert server.told == []
    wall.advance(2)
    token.write_text(jwt(NOW + 600))
    await ask(client)
    assert server.told == [f"Bearer {jwt(NOW + 600)}"]


async def test_file_that_is_half_written_does_not_end_what_works(tmp_path, serve, use, wall):
    server = await serve()
    source = kubeconfig(tmp_path, server, token="first")
    client = use(source)
    await ask(client)
    whole = (tmp_path / "kubeconfig").read_text()
    (tmp_path / "kubeconfig").write_text(whole[:50])
    for _ in range(5):
        wall.advance(10)
        await ask(client)
    (tmp_path / "kubeconfig").write_text(whole.replace("first", "second"))
    await until_sent(client, server, wall, "Bearer second")


def as_an_option(tmp_path, server, text):
    (tmp_path / "token").write_text(text)
    return Files(root=server.url, token=tmp_path / "token")


def in_a_file(tmp_path, server, text):
    (tmp_path / "token").write_text(text)
    return kubeconfig(tmp_path, server, tokenFile="token")


def in_the_kubeconfig(tmp_path, server, text):
    return kubeconfig(tmp_path, server, token=text)


def from_a_plugin(tmp_path, server, text):
    source = with_plugin(tmp_path, server)
    give(tmp_path, text)
    return source


PLACES = [as_an_option, in_a_file, in_the_kubeconfig, from_a_plugin]


@pytest.mark.parametrize("text", ["first\nsecond\n", "first second", "fir\x00st", "first\x7f"])
@pytest.mark.parametrize("place", PLACES)
async def test_what_no_header_can_carry_is_no_token(tmp_path, serve, use, wall, place, text):
    server = await serve()
    client = use(place(tmp_path, server, text))
    with pytest.raises(errors.NoCredentials, match="is no token"):
        await ask(client)
    assert not server.told
    place(tmp_path, server, "third\n")
    await until_sent_at_last(client, server, wall, "Bearer third")


@pytest.mark.parametrize("place", [as_an_option, in_a_file])
async def test_token_file_that_is_empty_is_waited_for(tmp_path, serve, use, wall, place):
    server = await serve()
    client = use(place(tmp_path, server, "\n"))
    with pytest.raises(errors.NoCredentials, match="no token in"):
        await ask(client)
    assert not server.told
    place(tmp_path, server, "first\n")
    await until_sent_at_last(client, server, wall, "Bearer first")


async def until_sent_at_last(client, server, wall, told):
    """There were no credentials a moment ago."""
    wall.advance(2)
    await ask(client)
    assert server.told == [told]


async def test_kubeconfig_that_is_not_there_yet_is_waited_for(tmp_path, serve, use, wall):
    server = await serve()
    source = kubeconfig(tmp_path, server, username="us", password="secret")
    (tmp_path / "kubeconfig").rename(tmp_path / "later")
    client = use(source)
    with pytest.raises(errors.NoCredentials, match="No such file"):
        await ask(client)
    (tmp_path / "later").rename(tmp_path / "kubeconfig")
    await until_sent(client, server, wall, f"Basic {base64.b64encode(b'us:secret').decode()}")


@pytest.mark.parametrize(
    "change",
    [
        {"current-context": "another"},
        {"contexts": None},
        {"clusters": [{"name": "tests", "cluster": {"server": ""}}]},
        {"clusters": [{"name": "tests", "cluster": {"server": "https://n", AUTHORITY: "§"}}]},
        {"users": [{"name": "us", "user": {"auth-provider": {"name": "oidc"}}}]},
        {"users": [{"name": "us", "user": "me"}]},
    ],
    ids=["context", "contexts", "server", "CA", "provider", "user"],
)
async def test_malformed_kubeconfig_is_told_by_its_name(tmp_path, serve, use, wall, change):
    server = await serve()
    client = use(kubeconfig(tmp_path, server, token="first"))
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(errors.NoCredentials, match=str(path)):
        await ask(client)


async def test_token_of_an_identity_provider_is_sent(tmp_path, serve, use):
    server = await serve()
    token = jwt(4_000_000_000)
    provider = {"name": "oidc", "config": {"id-token": token}}
    await ask(use(kubeconfig(tmp_path, server, **{"auth-provider": provider})))
    assert server.told == [f"Bearer {token}"]


class Authority:
    """A CA that issues certificates for 127.0.0.1."""

    def __init__(self, name, path):
        self._key, self._name = ec.generate_private_key(ec.SECP256R1()), _named(name)
        self.file = path
        self._certificate = self._sign(self._name, self._key, ca=True)
        path.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, name, directory):
        """Write a certificate and its key into the directory."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._sign(_named(name), key)
        form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        (directory / "key").write_bytes(key.private_bytes(serialization.Encoding.PEM, *form))
        (directory / "certificate").write_bytes(
            certificate.public_bytes(serialization.Encoding.PEM)
        )

    def _sign(self, name, key, *, ca=False):
        now = datetime.now(UTC)
        address = x509.IPAddress(ip_address("127.0.0.1"))
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([address]), critical=False)
            .add_extension(issuer, critical=False)
            .sign(self._key, hashes.SHA256())
        )


def _named(name):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def trusting(authority, directory):
    """What a server of this authority asks its clients for."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.file)
    # of Python 3.13: our certificates lack an Authority Key Identifier, as those of many clusters
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.load_cert_chain(directory / "certificate", directory / "key")
    context.verify_mode = ssl.CERT_REQUIRED
    return context


async def test_certificates_that_are_replaced_are_used_by_new_connections(
    tmp_path, serve, use, wall
):
    directories = [tmp_path / name for name in ("server", "client", "second")]
    for directory in directories:
        directory.mkdir()
    authority = Authority("first", tmp_path / "ca")
    authority.issue("server", directories[0])
    server = await serve(tls=trusting(authority, directories[0]))
    source = Files(
        root=server.url,
        ca=authority.file,
        certificate=directories[1] / "certificate",
        key=directories[1] / "key",
        token=tmp_path / "none",
    )
    client = use(source)
    with pytest.raises(errors.NoCredentials, match=r"there is no .*client/certificate"):
        await ask(client)
    wall.advance(2)
    authority.issue("node-1", directories[1])
    await ask(client)
    assert server.told == ["node-1"]
    authority.issue("node-2", directories[1])
    await until_sent(client, server, wall, "node-2")

    other = Authority("second", tmp_path / "ca")
    other.issue("server", directories[2])
    other.issue("node-3", directories[1])
    moved = await serve(tls=trusting(other, directories[2]))
    client = use(dataclasses.replace(source, root=moved.url))
    await ask(client)
    assert moved.told == ["node-3"]
    Authority("third", tmp_path / "ca")
    wall.advance(2)
    await ask(client)  # with the connection that is there; the new CA is read meanwhile
    with pytest.raises(errors.KubeError, match="CERTIFICATE_VERIFY_FAILED"):
        await ask_for_ever(client)


async def test_certificates_in_a_kubeconfig_leave_no_file(tmp_path, serve, use, monkeypatch):
    authority = Authority("first", tmp_path / "ca")
    authority.issue("us", tmp_path)
    server = await serve(tls=trusting(authority, tmp_path))

    def encoded(name):
        return base64.b64encode((tmp_path / name).read_bytes()).decode()

    user = {"client-certificate-data": encoded("certificate"), "client-key-data": encoded("key")}
    source = kubeconfig(tmp_path, server, **user)
    path = tmp_path / "kubeconfig"
    config = json.loads(path.read_text())
    config["clusters"][0]["cluster"][AUTHORITY] = encoded("ca")
    path.write_text(json.dumps(config))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    await ask(use(source))
    assert server.told == ["us"]
    assert list((tmp_path / "temporary").iterdir()) == []


async def ask_for_ever(client):
    async with asyncio.timeout(60):
        while True:
            await ask(client)


@pytest.mark.parametrize("named", ["ca", "certificate", "key"])
async def test_empty_file_of_certificates_is_waited_for(tmp_path, serve, use, wall, named):
    """It is being written. Without a CA, those of the system would say who gets the token."""
    authority = Authority("first", tmp_path / "ca")
    authority.issue("us", tmp_path)
    server = await serve(tls=trusting(authority, tmp_path))
    (tmp_path / "token").write_text("secret")
    paths = {name: tmp_path / name for name in ("ca", "certificate", "key", "token")}
    text = paths[named].read_text()
    paths[named].write_text("")
    client = use(Files(root=server.url, **paths))
    with pytest.raises(errors.NoCredentials, match=f"{named} is empty"):
        await ask(client)
    paths[named].write_text(text)
    await until_sent_at_last(client, server, wall, "us")
