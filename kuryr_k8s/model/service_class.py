"""Which Services are ours."""

from dataclasses import dataclass
from typing import Self

from oslo_config import cfg

from kuryr_k8s.model.service import EXTERNAL_NAME, LOAD_BALANCER, Service


@dataclass(frozen=True, slots=True, kw_only=True)
class Classes:
    """Which Services of type LoadBalancer are.

    :param own: the ``loadBalancerClass`` that is.
    :param default: what those without a class mean is ours to do as well.
    """

    own: str = "kuryr.openstack.org/octavia"
    default: bool = True

    @classmethod
    def read(cls, conf: cfg.ConfigOpts) -> Self:
        options = conf.kubernetes
        return cls(own=options.load_balancer_class, default=options.load_balancer_default)


def is_handled(service: Service, classes: Classes) -> bool:
    """Whether the Service is ours: has load balancers, and is answered at nodes. The others are
    left alone."""
    return (
        bool(service.cluster_ips)
        and not service.headless
        and service.type != EXTERNAL_NAME
        and service.load_balancer_class in (None, classes.own)
        and service.proxy_name is None
    )


def is_exposed(service: Service, classes: Classes) -> bool:
    """Whether what ``type: LoadBalancer`` means is ours to do, of a Service that is handled."""
    return service.type == LOAD_BALANCER and (
        service.load_balancer_class is not None or classes.default
    )
