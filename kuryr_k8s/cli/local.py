"""A client of the controller on this host: its HTTP server, and its socket for changes."""

import ipaddress
import json
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
from oslo_config import cfg

from kuryr_k8s import errors

Json = dict[str, Any]
SOCKETS_HOST = "http://localhost"  # HTTP wants one, though nobody looks at it
TIMEOUT = 90.0  # seconds: to populate a pool may take Neutron a while


class ControllerError(errors.KuryrError):
    """An error of the controller: it refuses, or none answers."""


def url_of(conf: cfg.ConfigOpts) -> str:
    """Return the address where the controller of this configuration listens."""
    host = conf.health_server.address
    if host in ("", "0.0.0.0", "::"):  # everywhere, so here too
        host = "::1" if host == "::" else "127.0.0.1"
    try:
        bracketed = ipaddress.ip_address(host).version == 6
    except ValueError:
        bracketed = False
    return f"http://{f'[{host}]' if bracketed else host}:{conf.health_server.port}"


def socket_of(conf: cfg.ConfigOpts) -> Path:
    """Return the path where the controller of this configuration takes changes."""
    return Path(conf.health_server.admin_socket)


def host_of(identity: str) -> str:
    """Return the host name with which the identity of a controller begins."""
    return identity.split("_", 1)[0]


class LocalController:
    """Sends requests to the controller; its answers are JSON objects.

    Every call raises ControllerError where nobody answers, or the answer is an error.

    :param address: the URL of its HTTP server, which changes nothing, or the path of its socket.
    """

    def __init__(self, address: str | Path) -> None:
        self._socket = address if isinstance(address, Path) else None
        self._base = SOCKETS_HOST if self._socket else str(address).rstrip("/")
        self.address = str(self._socket or self._base)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.UnixConnector(str(self._socket)) if self._socket else None
        self._session = aiohttp.ClientSession(
            connector=connector, timeout=aiohttp.ClientTimeout(total=TIMEOUT)
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def get(self, path: str) -> Json:
        """Read what the controller has at this path."""
        return await self._ask("GET", path, None)

    async def post(self, path: str, body: dict[str, Any]) -> Json:
        """Have the controller change something."""
        return await self._ask("POST", path, body)

    async def require_leader(self) -> None:
        """Check that the controller leads.

        :raises ControllerError: it stands by; the error names the host that leads.
        """
        state = await self.get("/status")
        if state["leading"]:
            return
        holder = state["lease"]["holder"]
        who = f"{host_of(holder)} leads: ask there" if holder else "no controller leads now"
        raise ControllerError(f"the controller of this host stands by; {who}")

    async def _ask(self, method: str, path: str, body: dict[str, Any] | None) -> Json:
        assert self._session is not None
        try:
            async with self._session.request(method, self._base + path, json=body) as response:
                status, text = response.status, await response.text()
        except aiohttp.ClientConnectorError as error:
            if isinstance(error.os_error, PermissionError):
                raise ControllerError(
                    f"only root and the user of the controller may use {self.address}"
                ) from error
            raise self._unanswered(error) from error
        except aiohttp.ClientConnectionError as error:
            raise self._unanswered(error) from error
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            what = error or type(error).__name__
            raise ControllerError(f"{self.address}: {path}: {what}") from error
        answer = _json_object(text)
        if status >= 400:
            raise ControllerError(str((answer or {}).get("error") or _unknown(status, path)))
        if answer is None:
            raise ControllerError(f"what answers at {self.address} is not a kuryr-k8s-controller")
        return answer

    def _unanswered(self, error: Exception) -> ControllerError:
        return ControllerError(f"no kuryr-k8s-controller answers at {self.address} ({error})")


def _json_object(text: str) -> Json | None:
    try:
        answer = json.loads(text)
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None


def _unknown(status: int, path: str) -> str:
    if status == 404:
        return f"the controller does not serve {path}: has it a pool driver?"
    return f"{path}: HTTP {status}"
