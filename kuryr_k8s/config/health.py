"""Options of the groups ``[health_server]`` and ``[cni_health_server]``."""

from oslo_config import cfg


def _server(port: int) -> list[cfg.Opt]:
    return [
        cfg.StrOpt(
            "address", default="127.0.0.1", help="Address of /livez, /readyz and /metrics."
        ),
        cfg.PortOpt("port", default=port, help="Port number of /livez, /readyz and /metrics."),
    ]


_admin = cfg.StrOpt(
    "admin_socket",
    default="/run/kuryr-controller/admin.sock",
    help="Path of the UNIX socket for requests that change something, such as those of "
    "kuryr-k8s pools populate. Only root and the user that the controller runs as may use it. "
    "Each controller on a host needs its own.",
)

health_server = [*_server(8082), _admin]
cni_health_server = _server(8090)
