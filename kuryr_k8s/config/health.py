"""Options of the groups ``[health_server]`` and ``[cni_health_server]``."""

from oslo_config import cfg


def _server(port: int) -> list[cfg.Opt]:
    return [
        cfg.StrOpt(
            "address", default="127.0.0.1", help="Address of /livez, /readyz and /metrics."
        ),
        cfg.PortOpt("port", default=port, help="Port number of /livez, /readyz and /metrics."),
    ]


health_server = _server(8082)
cni_health_server = _server(8090)
