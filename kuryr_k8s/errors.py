"""What can go wrong, sorted by what the controller does next.

Whatever a reconcile raises is retried with backoff, except two families:

* :class:`Wait`: nothing is wrong, look again after ``delay`` seconds;
* :class:`Refused`: retrying is useless until something is mended by a person.

``reason`` is the CamelCase word of the Event that a user sees on the object.
"""

from typing import ClassVar


class KuryrError(Exception):
    """Base of everything that this program raises on purpose."""

    reason: ClassVar[str] = "KuryrFailed"


class ConfigError(KuryrError):
    """The program cannot start with this configuration (exit code 2)."""


class Wait(KuryrError):
    """An expected delay: the key is looked at again after ``delay`` seconds."""

    def __init__(self, message: str, delay: float) -> None:
        super().__init__(message)
        self.delay = delay


class Refused(KuryrError):
    """Wrong input or missing permission: one Event, then slow retries."""

    reason = "KuryrRefused"


class CloudError(KuryrError):
    """An OpenStack API answered with an error, or (status 0) did not answer.

    ``request_id`` is the API's own ``x-openstack-request-id``, for its logs; ``kind`` is what
    Neutron calls the error, for example ``PortInUse``.
    """

    reason = "OpenStackFailed"

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        request_id: str | None = None,
        retry_after: float | None = None,
        kind: str = "",
    ) -> None:
        trace = f", request {request_id}" if request_id else ""
        super().__init__(f"{message} (HTTP {status}{trace})" if status else message)
        self.brief = message
        self.status = status
        self.request_id = request_id
        self.retry_after = retry_after
        self.kind = kind


class NotFound(CloudError):
    """404: whoever deletes treats it as success."""

    reason = "OpenStackObjectNotFound"


class Conflict(CloudError):
    """409 or 412 other than quota: somebody else changed the resource."""


class Immutable(Conflict):
    """409 of Octavia: it is at work on the load balancer, or a part of it is in ERROR."""


class OverQuota(CloudError):
    """The project's quota, or the subnet's addresses, are used up: passing, worth an Event."""

    reason = "OpenStackQuotaExceeded"


class BadRequest(CloudError, Refused):
    """400, 403 or 422: our request is wrong, or not allowed; 501: the provider of a load balancer
    cannot do it. A retry would be answered the same."""

    reason = "OpenStackRefused"


class Unsupported(BadRequest):
    """Octavia, its configuration or the provider cannot do what a load balancer is to have.

    ``feature`` is the attribute in :mod:`kuryr_k8s.model.load_balancer` that it is about, as far
    as the answer tells; else it is empty.
    """

    reason = "KuryrLoadBalancerUnsupported"

    def __init__(
        self, message: str, *, feature: str, status: int = 0, request_id: str | None = None
    ) -> None:
        super().__init__(message, status=status, request_id=request_id)
        self.feature = feature


class KubeError(KuryrError):
    """The Kubernetes API answered with an error, or (status 0) did not answer."""

    reason = "KubernetesFailed"

    def __init__(self, message: str, *, status: int = 0, retry_after: float | None = None) -> None:
        super().__init__(f"{message} (HTTP {status})" if status else message)
        self.status = status
        self.retry_after = retry_after


class KubeNotFound(KubeError):
    """404: the object is gone."""


class KubeConflict(KubeError):
    """409: the object exists already, or is not the one that the precondition named."""


class KubeGone(KubeError):
    """410: the resourceVersion is too old; list again."""
