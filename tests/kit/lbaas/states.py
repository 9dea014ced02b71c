"""Load balancers as they may be wanted, and as they may be found, for hypothesis."""

from dataclasses import replace

from hypothesis import strategies as st

from kuryr_k8s.model.load_balancer import (
    ACTIVE,
    ERROR,
    FoundLoadBalancer,
    HealthMonitor,
    Listener,
    LoadBalancer,
    Member,
    Pool,
)
from tests.kit.lbaas.octavia_model import L4, POOLS_OF, found_listener, found_pool, made, monitored

NAMES = ("web", "dns", "api", "sip")
PORTS = (53, 80, 443)
FRONTS = [(protocol, port) for port in PORTS for protocol in L4]
STATUSES = st.sampled_from([ACTIVE] * 7 + [ERROR])

members = st.lists(
    st.builds(
        Member,
        address=st.sampled_from(["10.2.0.1", "10.2.0.2", "fd02::1"]),
        port=st.sampled_from([8080, 8081]),
        name=st.sampled_from(["", "default/pod"]),
        subnet_id=st.sampled_from([None, "pods", "nodes"]),
        weight=st.sampled_from([0, 1, 5]),
    ),
    max_size=4,
    unique_by=lambda member: member.key,
).map(tuple)

TAGS = st.sampled_from([(), ("cluster",), ("kuryr-service:u1", "cluster")])

_tcp = HealthMonitor(type="TCP", delay=5, timeout=3, max_retries=1, max_retries_down=3)
_http = replace(_tcp, type="HTTP", http_method="GET", url_path="/", expected_codes="200")
monitors = st.sampled_from(
    [
        None,
        _tcp,
        replace(_tcp, delay=60),
        replace(_tcp, max_retries_down=4),
        _http,
        replace(_http, url_path="/other"),
    ]
)

# few draws, as there are many of each
LIMITS = st.sampled_from(
    [
        {},
        {"timeout_client_data": 1000, "timeout_tcp_inspect": 2000},
        {"timeout_client_data": 2000, "timeout_member_data": 1000},
        {"timeout_member_connect": 1000, "connection_limit": -1},
        {"connection_limit": 100},
    ]
)
CERTIFIED = st.sampled_from(
    [
        {},
        {"sni_container_refs": ("a", "b"), "tls_versions": ("TLSv1.3",)},
        {"sni_container_refs": ("b",), "tls_ciphers": "AES"},
        {"client_authentication": "MANDATORY", "client_ca_tls_container_ref": "ca"},
    ]
)
OVER_TLS = st.sampled_from(
    [
        {},
        {"tls_enabled": True},
        {"tls_enabled": True, "ca_tls_container_ref": "one"},
        {"tls_enabled": True, "ca_tls_container_ref": "two"},
    ]
)
ONCE = st.sampled_from(
    [{}] * 30
    + [
        {"vip_subnet_id": "services2"},
        {"vip_subnet_id": None},
        {"vip_network_id": "network"},
        {"vip_network_id": "network2"},
        {"vip_port_id": "port"},
        {"vip_port_id": "port2"},
        {"additional_vips": ("more",)},
        {"flavor_id": "large"},
        {"availability_zone": "here"},
        {"project_id": "other"},
    ]
)

fronts = st.lists(
    st.sampled_from(FRONTS), max_size=4, unique_by=lambda front: (L4[front[0]], front[1])
)


@st.composite
def listeners(draw, front, pool):
    headers = [()]
    if front[0] in ("HTTP", "TERMINATED_HTTPS"):
        headers += [("X-Forwarded-For",), ("X-Forwarded-For", "X-Forwarded-Port")]
    return Listener(
        name="a name",
        protocol=front[0],
        port=front[1],
        pool=pool,
        allowed_cidrs=draw(st.sampled_from([(), ("10.0.0.0/8",), ("10.0.0.0/8", "fd00::/8")])),
        insert_headers=draw(st.sampled_from(headers)),
        default_tls_container_ref=(
            draw(st.sampled_from(["one", "two"])) if front[0] == "TERMINATED_HTTPS" else None
        ),
        tags=draw(TAGS),
        **draw(LIMITS),
        **(draw(CERTIFIED) if front[0] == "TERMINATED_HTTPS" else {}),
    )


@st.composite
def pools(draw, name, protocol):
    persistence = draw(st.sampled_from([None, "SOURCE_IP"]))
    timeout = None
    if persistence and protocol in ("UDP", "SCTP"):
        timeout = draw(st.sampled_from([None, 60, 10800]))
    return Pool(
        name=name,
        protocol=protocol,
        lb_algorithm=draw(st.sampled_from(["ROUND_ROBIN", "SOURCE_IP_PORT"])),
        persistence=persistence,
        persistence_timeout=timeout,
        members=draw(members),
        health_monitor=draw(monitors),
        tags=draw(TAGS),
        **(draw(OVER_TLS) if protocol == "HTTP" else {}),
    )


@st.composite
def desired(draw):
    wanted_fronts = draw(fronts)
    names = draw(st.permutations(NAMES))[: len(wanted_fronts)]
    pairs = list(zip(wanted_fronts, names, strict=True))
    balancer = LoadBalancer(
        name="default/web",
        project_id="project",
        vip_subnet_id="services",
        vip_address=draw(st.sampled_from([None, "10.3.0.1", "10.3.0.1", "10.3.0.2"])),
        provider=draw(st.sampled_from([None, "amphora", "amphora", "ovn"])),
        tags=("cluster", "kuryr-service:u1"),
        vip_sg_ids=draw(st.sampled_from([None, None, (), ("a",), ("b", "a")])),
        listeners=tuple(draw(listeners(front, name)) for front, name in pairs),
        pools=tuple(
            draw(pools(name, draw(st.sampled_from(POOLS_OF[front[0]])))) for front, name in pairs
        ),
    )
    return replace(balancer, **draw(ONCE))


@st.composite
def any_found(draw):
    """Anything that people and broken-off work may have left."""
    some_pools = []
    for name in draw(st.lists(st.sampled_from(NAMES), max_size=5)):
        protocol = draw(st.sampled_from(["TCP", "PROXY", "UDP", "SCTP", "HTTP"]))
        pool = draw(pools(name, protocol))
        broken = draw(st.sets(st.sampled_from([member.key for member in pool.members] or [None])))
        broken = broken if draw(st.integers(0, 5)) == 0 else ()
        found = found_pool(pool, draw(STATUSES), broken)
        some_pools.append(monitored(found, pool.health_monitor, draw(STATUSES)))
    some_listeners = []
    for front in draw(fronts):
        fitting = [pool for pool in some_pools if pool.pool.protocol in POOLS_OF[front[0]]]
        pool = draw(st.sampled_from([None, *fitting, *fitting]))
        listener = draw(listeners(front, pool.pool.name if pool else ""))
        some_listeners.append(found_listener(listener, pool and pool.id, draw(STATUSES)))
    return replace(
        made(draw(desired())),
        provisioning_status=draw(st.sampled_from([ACTIVE] * 9 + [ERROR])),
        vip_address="10.3.0.1",
        listeners=tuple(some_listeners),
        pools=tuple(some_pools),
    )


@st.composite
def near(draw, wanted) -> FoundLoadBalancer:
    """What is found is nearly what is wanted: parts are missing, in ERROR, or exchanged."""
    found = made(wanted)
    strange = replace(draw(any_found()))
    kept_pools = [
        monitored(
            replace(pool, provisioning_status=draw(STATUSES)),
            draw(st.just(pool.pool.health_monitor) | monitors),
            draw(STATUSES),
        )
        for pool in found.pools
        if draw(st.integers(0, 3))
    ]
    ids = [pool.id for pool in kept_pools]
    if draw(st.booleans()):
        kept_pools += strange.pools
    fits = {pool.id: pool.pool.protocol for pool in kept_pools}
    kept_listeners = []
    for listener in found.listeners:
        if draw(st.integers(0, 3)) == 0:
            continue
        pool_id = listener.pool_id if listener.pool_id in ids else None
        if draw(st.integers(0, 2)) == 0:
            allowed = POOLS_OF[listener.listener.protocol]
            options = [pool_id for pool_id, protocol in fits.items() if protocol in allowed]
            pool_id = draw(st.sampled_from([None, *options]))
        kept_listeners.append(
            replace(listener, pool_id=pool_id, provisioning_status=draw(STATUSES))
        )
    taken = {
        (L4[listener.listener.protocol], listener.listener.port) for listener in kept_listeners
    }
    for extra in strange.listeners:
        if (L4[extra.listener.protocol], extra.listener.port) not in taken and draw(st.booleans()):
            known = extra.pool_id if extra.pool_id in fits else None
            kept_listeners.append(replace(extra, pool_id=known))
    return replace(found, listeners=tuple(kept_listeners), pools=tuple(kept_pools))


@st.composite
def pairs(draw):
    """What is wanted, and what is found: near it, far from it, or nothing."""
    wanted = draw(st.none() | desired() | desired() | desired())
    options = [st.none(), any_found()]
    if wanted is not None:
        options += [near(wanted)] * 4
    return wanted, draw(st.one_of(options))
