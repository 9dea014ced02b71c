"""A client of the HTTP server of the controller on this host."""

import ipaddress
import json
from types import TracebackType
from typing import Any, Self

import aiohttp
from oslo_config import cfg

from kuryr_k8s import errors

Json = dict[str, Any]
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


def host_of(identity: str) -> str:
    """Return the host name with which the identity of a controller begins."""
    return identity.split("_", 1)[0]


class LocalController:
    """Sends requests to the controller; its answers are JSON objects.

    Every call raises ControllerError where nobody answers, or the answer is an error.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT))
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
            async with self._session.request(method, self.url + path, json=body) as response:
                status, text = response.status, await response.text()
        except aiohttp.ClientConnectionError as error:
            raise ControllerError(
                f"no kuryr-k8s-controller answers at {self.url} ({error})"
            ) from error
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise ControllerError(f"{self.url}{path}: {error or type(error).__name__}") from error
        answer = _json_object(text)
        if status >= 400:
            raise ControllerError(str((answer or {}).get("error") or _unknown(status, path)))
        if answer is None:
            raise ControllerError(f"what answers at {self.url} is not a kuryr-k8s-controller")
        return answer


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
