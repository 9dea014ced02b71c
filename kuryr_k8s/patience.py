"""Durations, in seconds, that are a matter of judgement and no operator's business.

They stand in one place and are handed in, so that tests can shorten them without touching modules.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """The durations for which the controller waits, in seconds.

    :param first_refused: until a refusal is tried again for the first time; soon, since a Neutron
        that has just started refuses for a moment what its policy allows.
    :param refused: until it is tried again after that.
    :param longest_asked: the most that a ``Retry-After`` of a server is obeyed.
    :param start_retry: until an API that fails when the program starts is called again; from then
        on it takes twice as long each time, so that no account is locked out.
    :param longest_start_retry: the most that it takes.
    :param start_said: between two log lines about the same failure.
    :param kube_call: that one call to Kubernetes may take.
    :param authentication: for each request of authentication and discovery; calls of OpenStack
        have their own.
    :param failed_authentication: for which a failed one counts for all that waited for it.
    :param refused_authentication: for which a refused one does, so that no account is locked out.
    :param starting_call: that one call to OpenStack may take before the controller leads.
    :param first_watch_retry: until a watch that failed is asked for again for the first time; from
        then on it takes twice as long each time.
    :param first_retry: until a handler's work that failed is tried again for the first time; from
        then on it takes twice as long each time.
    :param first_pool_retry: until work of a pool that failed is tried again for the first time.
    :param short_pool_retry: between two attempts of pools that wait for the same thing, such as a
        quota, while Pods wait.
    :param sweep_retry: the longest back-off of a sweep, and of the work of pools.
    :param lost_port: until ports are swept after one was found missing.
    :param unneeded: between the two searches that find a load balancer or an address that no
        Service needs.
    :param late_attachment: after which Neutron carries out no call that nobody waits for any more:
        a port of a user is attached to no trunk then.
    :param refused_vip: until VIPs' ports are swept after a creation was refused.
    :param vip_port_confirmed: after which a VIP's port that was found is looked at again, at most.
    :param mirror_pod: for which the API server may be without the mirror of a static Pod.
    :param pod_network: between two reads of the networks and subnets of Pods and Services.
    :param routers: between two looks which routers lead into a network.
    :param pool_request: until a Pod that waits for a pool's port asks again by itself.
    :param pooled_port_name: until a pool's port bears its Pod's name: a Pod that lives shorter is
        not worth a call.
    :param untold_port: until the controller looks again at a port whose Pod cannot be told yet.
    :param unpark: that a node gets to unplug a port that is to be deleted.
    :param pool_counts: between two changes of the numbers in a KuryrPortPool.
    :param locate_node: between two attempts to find the hosts or trunks of all Nodes.
    :param unlocated_node: after which pools are emptied whose host or trunk no Node has, although
        those of some Nodes are not known yet.
    :param service_spec: until a Service that waits for its spec is looked at again; an event
        comes sooner.
    :param service_slices: until a Service with a selector counts as one without slices.
    :param service_endpoints: until a Service with a selector counts as one without Endpoints.
    :param missing_backend: for which a Service that an Ingress names may be missing before users
        are told: both may have been created at once.
    :param slow_gate: for which a Pod whose containers are ready may wait for its readiness gate
        before users are told.
    :param first_health_look: until the operating statuses of members are read again for the first
        time, while a Pod waits for a health monitor; from then on twice as long each time.
    :param longest_health_look: the most that it takes, and that a gate's work that failed waits.
    :param devices: for which a node's daemon may take to name the devices of a Pod before users
        are told.
    :param storing: for which certificates of an L7 router are stored while its other changes wait.
    :param first_survey: until a Service is looked at again though Octavia's load balancers are not
        known yet; the survey wakes it sooner.
    :param pending_load_balancer: until a Service is looked at again though its load balancer has
        not left PENDING; the watch wakes it sooner.
    :param first_pending_look: until Octavia is first asked what is still PENDING.
    :param first_repair: from an ERROR to the first repair; an Event tells of the ERROR meanwhile.
    :param unseen_change: for which Octavia may show nothing of a change; the ovn provider does not
        show members that are going.
    :param unseen_change_look: between two looks at such a change.
    """

    first_refused: float = 5.0
    refused: float = 30.0
    longest_asked: float = 300.0
    start_retry: float = 2.0
    longest_start_retry: float = 30.0
    start_said: float = 60.0
    kube_call: float = 30.0
    authentication: float = 8.0
    failed_authentication: float = 1.0
    refused_authentication: float = 10.0
    starting_call: float = 8.0
    first_watch_retry: float = 0.5
    first_retry: float = 0.5
    first_pool_retry: float = 0.5
    short_pool_retry: float = 1.5
    sweep_retry: float = 30.0
    lost_port: float = 2.0
    unneeded: float = 10.0
    late_attachment: float = 300.0
    refused_vip: float = 5.0
    vip_port_confirmed: float = 60.0
    mirror_pod: float = 20.0
    pod_network: float = 60.0
    routers: float = 600.0
    pool_request: float = 30.0
    pooled_port_name: float = 10.0
    untold_port: float = 30.0
    unpark: float = 60.0
    pool_counts: float = 10.0
    locate_node: float = 60.0
    unlocated_node: float = 600.0
    service_spec: float = 30.0
    service_slices: float = 1.0
    service_endpoints: float = 5.0
    missing_backend: float = 3.0
    slow_gate: float = 60.0
    first_health_look: float = 0.5
    longest_health_look: float = 10.0
    devices: float = 15.0
    storing: float = 5.0
    first_survey: float = 60.0
    pending_load_balancer: float = 60.0
    first_pending_look: float = 0.1
    first_repair: float = 5.0
    unseen_change: float = 3.0
    unseen_change_look: float = 0.5


PATIENCE = Patience()
