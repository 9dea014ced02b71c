"""Credentials for the API server, which others replace while a program runs.

Tokens, client certificates and CAs are files that the kubelet or an operator replaces, or come
from a plugin (``exec`` in a kubeconfig) and expire. They are read again when a file has changed,
some time before they expire, and after the server has refused them (401). Until there are valid
ones, nothing is sent: a program waits for them as for the server itself.
"""

import asyncio
import base64
import binascii
import dataclasses
import json
import logging
import ssl
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass

from kuryr_k8s import errors
from kuryr_k8s.engine.clock import CLOCK, Clock

LOG = logging.getLogger(__name__)
AGAIN = 2.0  # seconds from one attempt to read them to the next
DOUBTED = 10.0  # seconds for which credentials that were just read are not doubted
EARLY = 60.0  # seconds before they expire, at most a fifth of their life, they are renewed
FileStates = tuple[tuple[int, int, int], ...]


class Unreadable(Exception):
    """The credentials cannot be read; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    """The server's certificate authorities and our own certificate, as PEM.

    :param ca: empty: those of the system.
    :param verify: whether the server's certificate is verified.
    """

    ca: str = ""
    certificate: str = ""
    key: str = field(default="", repr=False)
    verify: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The way to the API server and the credentials for it, as they were read.

    :param server: the URL, without a slash at its end.
    :param authorization: the header; empty: none is sent.
    :param server_name: the name that the server's certificate must bear; None: that of the URL.
    :param proxy: the URL of an HTTP proxy; None: that of the environment, if there is one.
    :param files: what they were read from.
    :param expires: in seconds since the epoch; None: nobody says.
    """

    server: str
    authorization: str = field(default="", repr=False)
    certificates: Certificates = Certificates()
    server_name: str | None = None
    proxy: str | None = None
    files: tuple[Path, ...] = ()
    expires: float | None = None


@dataclass(frozen=True, slots=True)
class Access:
    """The address and the credentials for requests, and their TLS settings.

    :param tls: what new connections authenticate by; None: they are not encrypted. Connections are
        kept by this object, so those of earlier certificates are used no more.
    """

    loaded: Loaded
    tls: ssl.SSLContext | None


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
        self._access: Access | None = None
        self._loaded_at = 0.0
        self._loading: asyncio.Future[_Read] | None = None
        self._file_states: FileStates = ()  # when the files were read
        self._tried_at: float | None = None
        self._doubted = False
        self._problem = ""

    def doubt(self) -> None:
        """Note that the server does not accept the credentials."""
        self._doubted = True

    async def get(self) -> Access:
        """Return valid credentials, read again if it is time for that.

        :raises errors.NoCredentials: there are none.
        """
        if self._loading is None and self._is_stale():
            self._begin()
        if not self._are_valid() and self._loading is not None:
            await asyncio.wait([self._loading])
        if self._access is None or not self._are_valid():
            raise errors.NoCredentials(self._problem or "there are no credentials yet")
        return self._access

    def _are_valid(self) -> bool:
        if self._access is None:
            return False
        expires = self._access.loaded.expires
        return expires is None or self._now() < expires

    def _is_stale(self) -> bool:
        """Return whether it is time to read them again."""
        if self._tried_at is not None and self._clock.now() - self._tried_at < AGAIN:
            return False
        if self._access is None or _states_of(self._access.loaded.files) != self._file_states:
            return True
        age = self._clock.now() - self._loaded_at
        if self._doubted and age >= DOUBTED:
            return True
        if (expires := self._access.loaded.expires) is None:
            return False
        left = expires - self._now()
        return left < min(EARLY, (left + age) / 5)

    def _begin(self) -> None:
        self._tried_at = self._clock.now()
        # in a thread: whoever gives up waiting must not end what others wait for
        loading = asyncio.get_running_loop().run_in_executor(
            None, _load, self._source, self._access
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
        self._access, self._file_states = loading.result()
        self._loaded_at, self._doubted = self._clock.now(), False
        self._problem = ""
        if not self._are_valid():  # what the host's clock says, as for plugins of kubectl
            loaded = self._access.loaded
            when = datetime.fromtimestamp(loaded.expires or 0.0, UTC)
            self._problem = f"the token of {_names(loaded.files)} has expired at {when:%FT%TZ}"

    def _fail(self, problem: str) -> None:
        if problem != self._problem and self._are_valid():
            LOG.warning("credentials of the API server: %s; those from before are used", problem)
        self._problem = problem


class _Read(NamedTuple):
    """All that was read at one time."""

    access: Access
    file_states: FileStates


def _load(source: Source, known: Access | None) -> _Read:
    """Read everything; in a thread."""
    before = _states_of(known.loaded.files) if known is not None else ()
    loaded = source.load()
    if not loaded.proxy:
        loaded = dataclasses.replace(loaded, proxy=_proxy_of_environment(loaded.server))
    # those from before the files were read: a change in between is read the next time
    same = known is not None and known.loaded.files == loaded.files
    states = before if same else _states_of(loaded.files)
    tls = known.tls if known is not None and _is_reached_alike(known.loaded, loaded) else None
    return _Read(Access(loaded, tls or _context(loaded)), states)


def _proxy_of_environment(server: str) -> str | None:
    """Return the HTTP proxy that the environment names for a server (``HTTPS_PROXY`` etc.)."""
    try:
        url = urlsplit(server)
        names = (url.hostname or "", url.netloc)
    except ValueError as error:
        raise Unreadable(f"{server!r} is no URL: {error}") from error
    proxies = getproxies_environment()
    proxy = proxies.get(url.scheme, "")
    if not proxy or any(proxy_bypass(name, proxies) for name in names):
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    return proxy if proxy.startswith("http://") else None


def _is_reached_alike(one: Loaded, other: Loaded) -> bool:
    """Return whether connections of the one may be used by the other."""
    return (one.server, one.certificates) == (other.server, other.certificates)


def _context(loaded: Loaded) -> ssl.SSLContext | None:
    if not loaded.server.startswith("https:"):
        return None
    given = loaded.certificates
    try:
        context = ssl.create_default_context(cadata=given.ca or None)
        # of Python 3.13: certificates of many clusters lack an Authority Key Identifier
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if given.certificate:
            _show(given, context)
    except (OSError, ValueError) as error:  # also of a key that its certificate is not there for
        raise Unreadable(f"{_names(loaded.files)}: {error}") from error
    if not given.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _show(given: Certificates, context: ssl.SSLContext) -> None:
    """Have connections show our certificate; the ssl module reads it from files only."""
    with tempfile.TemporaryDirectory(prefix="kuryr-") as directory:  # nobody else's
        certificate, key = Path(directory, "certificate"), Path(directory, "key")
        certificate.write_text(given.certificate)
        key.write_text(given.key)
        context.load_cert_chain(certificate, key if given.key else None)


def _states_of(files: Sequence[Path]) -> FileStates:
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


def check_token(token: str, place: object) -> str:
    """Return a token that a header can carry.

    :param place: where it is from.
    :raises Unreadable: it is empty, or has characters inside such as a line break.
    """
    if not token:
        raise Unreadable(f"there is no token in {place} yet")
    if not token.isprintable() or " " in token:
        raise Unreadable(f"what is in {place} is no token: it has spaces or control characters")
    return token


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
