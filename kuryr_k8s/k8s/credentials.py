"""Credentials for the API server, which others replace while a program runs.

Tokens, client certificates and CAs are files that the kubelet or an operator replaces, or come
from a plugin (``exec`` in a kubeconfig) and expire. They are read again when a file has changed,
some time before they expire, and after the server has refused them (401). Until there are valid
ones, nothing is sent: a program waits for them as for the server itself.
"""

import asyncio
import base64
import binascii
import json
import logging
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import aiohttp
from kubernetes_asyncio.client import ApiClient, Configuration

from kuryr_k8s import errors
from kuryr_k8s.engine.clock import CLOCK, Clock

LOG = logging.getLogger(__name__)
AGAIN = 2.0  # seconds from one attempt to read them to the next
DOUBTED = 10.0  # seconds for which credentials that were just read are not doubted
EARLY = 60.0  # seconds before they expire, at most a fifth of their life, they are renewed
BEARER = "BearerToken"
Signature = tuple[tuple[int, int, int], ...]


class Unreadable(Exception):
    """The credentials cannot be read; the message says why."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """Credentials as they were read.

    :param configuration: the server's address, the token and the names of the certificates' files.
    :param files: what they were read from.
    :param expires: in seconds since the epoch; None: nobody says.
    """

    configuration: Configuration
    files: tuple[Path, ...]
    expires: float | None = None


class Source(Protocol):
    """Where credentials come from."""

    def load(self) -> Loaded:
        """Read them; called in a thread.

        :raises Unreadable: there are none.
        """


class Credentials:
    """The credentials of one client, always the newest.

    :param source: reads them.
    :param now: returns the seconds since the epoch.
    """

    def __init__(
        self, source: Source, *, now: Callable[[], float] = time.time, clock: Clock = CLOCK
    ) -> None:
        self._source = source
        self._now = now
        self._clock = clock
        self._client: ApiClient | None = None
        self._loaded: Loaded | None = None
        self._loaded_at = 0.0
        self._loading: asyncio.Future[_Read] | None = None
        self._signature: Signature = ()  # of the files, when they were read
        self._certificates = _Certificates()
        self._tried_at: float | None = None
        self._doubted = False
        self._problem = ""

    def serve(self, client: ApiClient) -> None:
        """Have the client use these credentials, those to come included."""
        self._client = client
        rest = client.rest_client
        rest.pool_manager = _Session(rest.pool_manager, self)  # type: ignore[assignment]

    @property
    def tls(self) -> ssl.SSLContext | None:
        """What new connections authenticate by; None: they are not encrypted."""
        return self._certificates.context

    def doubt(self) -> None:
        """Note that the server does not accept the credentials."""
        self._doubted = True

    async def renew(self) -> None:
        """Make sure that the next request bears valid credentials.

        :raises errors.NoCredentials: there are none.
        """
        if self._loading is None and self._is_stale():
            self._begin()
        if not self._are_valid() and self._loading is not None:
            await asyncio.wait([self._loading])
        if not self._are_valid():
            raise errors.NoCredentials(self._problem or "there are no credentials yet")

    def _are_valid(self) -> bool:
        if self._loaded is None:
            return False
        return self._loaded.expires is None or self._now() < self._loaded.expires

    def _is_stale(self) -> bool:
        """Return whether it is time to read them again."""
        if self._tried_at is not None and self._clock.now() - self._tried_at < AGAIN:
            return False
        if self._loaded is None or _signature(self._loaded.files) != self._signature:
            return True
        age = self._clock.now() - self._loaded_at
        if self._doubted and age >= DOUBTED:
            return True
        if self._loaded.expires is None:
            return False
        left = self._loaded.expires - self._now()
        return left < min(EARLY, (left + age) / 5)

    def _begin(self) -> None:
        self._tried_at = self._clock.now()
        # in a thread: whoever gives up waiting must not end what others wait for
        loading = asyncio.get_running_loop().run_in_executor(
            None, _load, self._source, self._certificates
        )
        loading.add_done_callback(self._take)
        self._loading = loading

    def _take(self, loading: "asyncio.Future[_Read]") -> None:
        """Use what was read from now on, or tell why nothing could be."""
        self._loading = None
        if loading.cancelled():
            return
        error = loading.exception()
        if error is not None:
            self._fail(str(error) or type(error).__name__)
            if not isinstance(error, Unreadable):
                LOG.error("credentials of the API server", exc_info=error)
            return
        loaded, self._signature, self._certificates = loading.result()
        self._loaded, self._loaded_at, self._doubted = loaded, self._clock.now(), False
        if not self._are_valid():  # what the host's clock says, as for plugins of kubectl
            when = datetime.fromtimestamp(loaded.expires or 0.0, UTC)
            self._fail(f"the token of {_names(loaded.files)} has expired at {when:%FT%TZ}")
            return
        self._problem = ""
        if self._client is not None:
            _apply(loaded.configuration, self._client)

    def _fail(self, problem: str) -> None:
        if problem != self._problem and self._are_valid():
            LOG.warning("credentials of the API server: %s; those from before are used", problem)
        self._problem = problem


class _Session:
    """A session of aiohttp whose new connections use the present certificates."""

    def __init__(self, session: aiohttp.ClientSession, credentials: Credentials) -> None:
        self._session = session
        self._credentials = credentials

    async def request(self, **arguments: Any) -> aiohttp.ClientResponse:
        # connections are kept by their context: those of an earlier one are used no more
        return await self._session.request(ssl=self._credentials.tls or True, **arguments)

    async def close(self) -> None:
        await self._session.close()


@dataclass(frozen=True, slots=True)
class _Certificates:
    """The TLS context, and the files that it was made from."""

    context: ssl.SSLContext | None = None
    made_from: tuple[Any, ...] = ()


class _Read(NamedTuple):
    """All that was read at one time."""

    loaded: Loaded
    signature: Signature
    certificates: _Certificates


def _load(source: Source, known: _Certificates) -> _Read:
    """Read everything; in a thread."""
    loaded = source.load()
    # taken before the certificates are read: a change in between is read the next time
    signature = _signature(loaded.files)
    return _Read(loaded, signature, _certificates(loaded.configuration, known))


def _certificates(configuration: Configuration, known: _Certificates) -> _Certificates:
    """Make a context of the certificates, unless they are those that are known."""
    if not str(configuration.host).startswith("https:"):
        return _Certificates()
    names = (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)
    files = tuple(Path(name) for name in names if name)
    made_from = (names, bool(configuration.verify_ssl), _signature(files))
    if known.made_from == made_from:
        return known
    for file in files:
        if not file.is_file():
            raise Unreadable(f"there is no {file}")
    try:
        context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
        if configuration.cert_file:
            context.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
    except (OSError, ValueError) as error:  # also of a key that its certificate is not there for
        raise Unreadable(f"{_names(files)}: {error}") from error
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return _Certificates(context, made_from)


def _apply(fresh: Configuration, client: ApiClient) -> None:
    used, rest = client.configuration, client.rest_client
    used.host = fresh.host
    used.api_key = fresh.api_key
    rest.server_hostname = fresh.tls_server_name  # type: ignore[assignment]
    rest.proxy = fresh.proxy  # type: ignore[assignment]


def _signature(files: Sequence[Path]) -> Signature:
    """Return what tells whether one of the files has been replaced."""
    return tuple(_state(file) for file in files)


def _state(file: Path) -> tuple[int, int, int]:
    try:
        found = file.stat()
    except OSError:
        return (0, 0, 0)
    return (found.st_ino, found.st_mtime_ns, found.st_size)


def _names(files: Sequence[Path]) -> str:
    return ", ".join(str(file) for file in files)


def expiry_of(token: str) -> float | None:
    """Return when a token says that it expires (JWT's ``exp``); None if it does not say."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return float(claims["exp"])
    except (ValueError, KeyError, TypeError, binascii.Error):
        return None


def earliest(*times: float | None) -> float | None:
    """Return the earliest of those that are known."""
    return min((time for time in times if time is not None), default=None)
