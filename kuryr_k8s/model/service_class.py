"""Classes of Services that this program handles."""

from dataclasses import dataclass
from typing import Self

from oslo_config import cfg

from kuryr_k8s.model.service import EXTERNAL_NAME, LOAD_BALANCER, Service


@dataclass(frozen=True, slots=True, kw_only=True)
class Classes:
    """Classes of Services of type LoadBalancer.

    :param own: our ``loadBalancerClass``.
    :param default: Services without a class are ours as well.
    """

    own: str = "kuryr.openstack.org/octavia"
    default: bool = True

    @classmethod
    def read(cls, conf: cfg.ConfigOpts) -> Self:
        """Read the options."""
        options = conf.kubernetes
        return cls(own=options.load_balancer_class, default=options.load_balancer_default)


def is_handled(service: Service) -> bool:
    """Return whether the Service is ours: has load balancers, and is answered at nodes.

    A ``loadBalancerClass`` is about the address outside alone: another controller's class leaves
    the ClusterIP and the node ports to us, as it does to every implementation of Services.
    """
    return (
        bool(service.cluster_ips)
        and not service.headless
        and service.type != EXTERNAL_NAME
        and not service.of_others
    )


def is_exposed(service: Service, classes: Classes) -> bool:
    """Return whether a Service that is handled gets its address outside from us."""
    return service.type == LOAD_BALANCER and (
        classes.default
        if service.load_balancer_class is None
        else service.load_balancer_class == classes.own
    )
