"""Errors, sorted by what the controller does next.

Whatever a reconcile raises is retried with a growing delay, except two families:

* :class:`Wait`: nothing is wrong; the controller looks again after ``delay`` seconds.
* :class:`Refused`: a retry is useless until a person has mended something.

``reason`` is the CamelCase word of the Event that a user sees on the object.
"""

from typing import ClassVar


class KuryrError(Exception):
    """Base class of everything that this program raises on purpose."""

    reason: ClassVar[str] = "KuryrFailed"


class ConfigError(KuryrError):
    """The program cannot start with this configuration (exit code 2)."""


class Wait(KuryrError):
    """An expected delay: the controller looks at the key again after ``delay`` seconds."""

    def __init__(self, message: str, delay: float) -> None:
        super().__init__(message)
        self.delay = delay


class Refused(KuryrError):
    """Wrong input or a missing permission: one Event, then slow retries."""

    reason = "KuryrRefused"


class NotOurs(Refused):
    """An object in the cloud does not bear the mark of this cluster: it is not touched."""

    reason = "KuryrNotOurs"


class CloudError(KuryrError):
    """An OpenStack API answered with an error, or (status 0) did not answer.

    ``request_id`` is the API's own ``x-openstack-request-id``, for its logs. ``kind`` is Neutron's
    name of the error, for example ``PortInUse``. ``text`` is all that the API says. ``api`` names
    the API, if one was called.
    """

    reason = "OpenStackFailed"
    api: str = ""

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        request_id: str | None = None,
        retry_after: float | None = None,
        kind: str = "",
        text: str = "",
    ) -> None:
        trace = f", request {request_id}" if request_id else ""
        super().__init__(f"{message} (HTTP {status}{trace})" if status else message)
        self.brief = message
        self.status = status
        self.request_id = request_id
        self.retry_after = retry_after
        self.kind = kind
        self.text = text or message

    @property
    def is_refusal(self) -> bool:
        """True if the API itself said that it did nothing; a 404 of a proxy does not say so."""
        return 400 <= self.status < 500 and (self.status != 404 or isinstance(self, NotFound))

    @property
    def is_of_request(self) -> bool:
        """True if the API refuses what is asked for, whoever asks: the next call may be taken."""
        return isinstance(self, BadRequest | OverQuota) and self.status != 401

    @property
    def is_outage(self) -> bool:
        """True if the API, or the Keystone that it relies on, did not serve at that moment."""
        return bool(self.api) and (self.status in (0, 401, 429) or self.status >= 500)


class NotFound(CloudError):
    """404 in the API's own words; whoever deletes the object treats it as success.

    A 404 of anything else, such as a proxy that has lost its backend, is a plain CloudError.
    """

    reason = "OpenStackObjectNotFound"


class Conflict(CloudError):
    """409 or 412 other than a quota: somebody else changed the object."""


class Immutable(Conflict):
    """409 of Octavia: it is changing the load balancer, or a part of it is in ERROR."""


class OverQuota(CloudError):
    """The project's quota, or the subnet's addresses, are used up: passing, but worth an Event."""

    reason = "OpenStackQuotaExceeded"


class NoAddress(OverQuota):
    """A subnet has no free address; the project may have quota left."""


class BadRequest(CloudError, Refused):
    """400, 403, 413, 422 or 501: the request is wrong, too large, not allowed, or not supported.

    A retry would get the same answer.
    """

    reason = "OpenStackRefused"


class Unsupported(BadRequest):
    """Octavia, its configuration or the provider does not support a feature of a load balancer.

    ``feature`` is the attribute in :mod:`kuryr_k8s.model.load_balancer` that the answer is about;
    it is empty if the answer does not tell.
    """

    reason = "KuryrLoadBalancerUnsupported"

    def __init__(
        self,
        message: str,
        *,
        feature: str,
        status: int = 0,
        request_id: str | None = None,
        text: str = "",
    ) -> None:
        super().__init__(message, status=status, request_id=request_id, text=text)
        self.feature = feature


class KubeError(KuryrError):
    """The Kubernetes API answered with an error, or (status 0) did not answer."""

    reason = "KubernetesFailed"

    def __init__(self, message: str, *, status: int = 0, retry_after: float | None = None) -> None:
        super().__init__(f"{message} (HTTP {status})" if status else message)
        self.status = status
        self.retry_after = retry_after


class NoCredentials(KubeError):
    """Nothing was sent: there are no credentials, or they have expired."""


class KubeForbidden(KubeError):
    """403 of the server's authorizer: the account lacks a permission.

    Whatever else is answered 403 concerns one object: a quota, an admission webhook or policy.
    """


class KubeNamespaceEnds(KubeError):
    """403: nothing can be created in a namespace that is being deleted."""


class KubeNotFound(KubeError):
    """404: the object is gone."""


class KubeConflict(KubeError):
    """409: the object exists already, or is not the one that the precondition named."""


class KubeGone(KubeError):
    """410: the resourceVersion is too old; list again."""
