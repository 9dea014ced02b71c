"""The configuration files of Keystone, Neutron, Barbican and Octavia, and clouds.yaml."""

from __future__ import annotations

import base64
import json
from pathlib import Path

from lab.openstack import mariadb
from lab.ovn import daemons as ovn
from lab.paths import Paths, write_atomic

# The services talk to each other over loopback; users, on any node, over the underlay.
HOST = "198.18.0.1"
KEYSTONE_PORT, NEUTRON_PORT, BARBICAN_PORT, OCTAVIA_PORT = 5000, 9696, 9311, 9876
KEYSTONE_URL = f"http://{HOST}:{KEYSTONE_PORT}/v3"
NEUTRON_URL = f"http://{HOST}:{NEUTRON_PORT}"
BARBICAN_URL = f"http://{HOST}:{BARBICAN_PORT}"
OCTAVIA_URL = f"http://{HOST}:{OCTAVIA_PORT}"
_LOCAL_KEYSTONE = f"http://127.0.0.1:{KEYSTONE_PORT}"
ADMIN_PASSWORD, SERVICE_PASSWORD, USER_PASSWORD = "admin", "service", "secret"
USERS = {
    "lab": ("admin", ADMIN_PASSWORD, "admin"),
    "kuryr": ("kuryr", USER_PASSWORD, "k8s"),
    "tenant2": ("tenant2", USER_PASSWORD, "tenant2"),
}
OCTAVIA_SOCKETS = Path("/var/run/octavia")
# 32 characters; the same for ever, since secrets in a database that is kept are encrypted by it.
_KEY = "insecure-key-do-not-use-this-key"


def render(sections: dict[str, dict[str, object]]) -> str:
    """Build the text of an oslo.config file."""
    parts = []
    for name, options in sections.items():
        lines = [f"{option} = {_text(value)}" for option, value in options.items()]
        parts.append("\n".join([f"[{name}]", *lines]))
    return "\n\n".join(parts) + "\n"


def write_keystone(paths: Paths) -> None:
    """Write keystone.conf, and make Keystone's directories."""
    data = paths.data / "keystone"
    data.mkdir(parents=True, exist_ok=True)
    write_atomic(
        paths.etc / "keystone" / "keystone.conf",
        render(
            {
                "database": {"connection": mariadb.url(paths, "keystone")},
                "token": {"provider": "fernet", "expiration": 86400},
                "fernet_tokens": {"key_repository": data / "fernet"},
                "credential": {"key_repository": data / "credential"},
                # Four rounds is the minimum; the default costs 0.2 s of CPU for every password.
                "identity": {"password_hash_rounds": 4},
                "cache": {"enabled": True, "backend": "dogpile.cache.memory"},
            }
        ),
    )


def write_neutron(paths: Paths, venv: Path) -> None:
    """Write Neutron's configuration, and make its directories."""
    data = paths.data / "neutron"
    (data / "lock").mkdir(parents=True, exist_ok=True)
    quotas = (
        "port",
        "network",
        "subnet",
        "router",
        "floatingip",
        "security_group",
        "security_group_rule",
        "trunk",
        "rbac_policy",
    )
    write_atomic(
        paths.etc / "neutron" / "neutron.conf",
        render(
            {
                "DEFAULT": {
                    "host": "controller",
                    "state_path": data,
                    "core_plugin": "ml2",
                    "service_plugins": "ovn-router,trunk,qos,port_forwarding",
                    "auth_strategy": "keystone",
                    "api_paste_config": venv / "etc/neutron/api-paste.ini",
                    # No message broker: nothing that would listen on one runs here.
                    "transport_url": "fake://",
                    "rpc_workers": 0,
                    "notify_nova_on_port_status_changes": False,
                    "notify_nova_on_port_data_changes": False,
                    "global_physnet_mtu": 1500,
                    "dns_domain": "openstacklocal.",
                    "max_allowed_address_pair": 100,
                },
                "database": {
                    "connection": mariadb.url(paths, "neutron"),
                    "max_pool_size": 10,
                    "max_overflow": 20,
                },
                "keystone_authtoken": _service("neutron")
                | {"www_authenticate_uri": _LOCAL_KEYSTONE, "service_token_roles_required": False},
                "oslo_concurrency": {"lock_path": data / "lock"},
                "oslo_policy": {"enforce_scope": True},
                "quotas": {f"quota_{name}": -1 for name in quotas},
            }
        ),
    )
    write_atomic(
        paths.etc / "neutron" / "ml2_conf.ini",
        render(
            {
                "ml2": {
                    "type_drivers": "local,flat,vlan,geneve",
                    "tenant_network_types": "geneve",
                    "mechanism_drivers": "ovn,sriovnicswitch",
                    # The last one takes tags in the body of a port: without it they are
                    # dropped in silence.
                    "extension_drivers": "port_security,qos,dns,tag_ports_during_bulk_creation",
                    "overlay_ip_version": 4,
                },
                "ml2_type_geneve": {"vni_ranges": "1:65000", "max_header_size": 38},
                "ml2_type_flat": {"flat_networks": "*"},
                "ml2_type_vlan": {"network_vlan_ranges": "physnet1:100:3000"},
                "securitygroup": {"enable_security_group": True},
                "ovn": {
                    "ovn_nb_connection": ovn.NORTHBOUND,
                    "ovn_sb_connection": ovn.SOUTHBOUND,
                    "ovn_l3_scheduler": "leastloaded",
                    "enable_distributed_floating_ip": False,
                    "ovn_metadata_enabled": False,
                    "neutron_sync_mode": "log",
                },
            }
        ),
    )


def barbican_home(paths: Paths) -> Path:
    """Return the directory in which Barbican looks for its configuration: that of its user."""
    return paths.etc / "barbican"


def write_barbican(paths: Paths, venv: Path) -> None:
    """Write Barbican's configuration, and the application that uWSGI loads."""
    home = barbican_home(paths)
    quotas = ("secrets", "orders", "containers", "consumers", "cas")
    write_atomic(
        home / "barbican.conf",
        render(
            {
                "DEFAULT": {"host_href": BARBICAN_URL, "transport_url": "fake://"},
                "database": {"connection": mariadb.url(paths, "barbican")},
                "keystone_authtoken": _service("barbican")
                | {"www_authenticate_uri": _LOCAL_KEYSTONE, "service_token_roles_required": False},
                "secretstore": {"enabled_secretstore_plugins": "store_crypto"},
                "crypto": {"enabled_crypto_plugins": "simple_crypto"},
                "simple_crypto_plugin": {"kek": base64.urlsafe_b64encode(_KEY.encode()).decode()},
                "quotas": {f"quota_{name}": -1 for name in quotas},
            }
        ),
    )
    # Barbican's own module takes the pipeline from a path below /etc, which is built into it.
    pipeline = venv / "etc/barbican/barbican-api-paste.ini"
    write_atomic(
        home / "barbican_wsgi.py",
        f"""\
from paste import deploy

application = deploy.loadapp({f"config:{pipeline}"!r})
""",
    )


def write_octavia(paths: Paths, management_network: str) -> None:
    """Write Octavia's configuration, and make its directories."""
    etc = paths.etc / "octavia"
    quotas = (
        "load_balancer",
        "listener",
        "member",
        "pool",
        "health_monitor",
        "l7policy",
        "l7rule",
    )
    ca, key = etc / "ca.pem", etc / "ca.key"
    amphorae = paths.run / "amp"  # short: sockets are below it
    amphorae.mkdir(parents=True, exist_ok=True)
    providers = {
        "amphora": "haproxy in network namespaces",
        "ovn": "OVN L4",
        "noop_driver": "no-op",
    }
    write_atomic(
        etc / "octavia.conf",
        render(
            {
                "DEFAULT": {"host": "controller", "transport_url": "fake://"},
                "api_settings": {
                    "bind_host": "127.0.0.1",
                    "bind_port": OCTAVIA_PORT,
                    "auth_strategy": "keystone",
                    "enabled_provider_drivers": ",".join(
                        f"{k}:'{v}'" for k, v in providers.items()
                    ),
                    "default_provider_driver": "amphora",
                    "allow_tls_terminated_listeners": True,
                    "healthcheck_enabled": True,
                },
                "database": {"connection": mariadb.url(paths, "octavia")},
                "oslo_messaging": {"topic": "octavia_prov"},
                "keystone_authtoken": _service("octavia")
                | {"www_authenticate_uri": _LOCAL_KEYSTONE, "service_token_roles_required": False},
                "service_auth": _service("octavia"),
                "neutron": _service("octavia")
                | {"endpoint_override": f"http://127.0.0.1:{NEUTRON_PORT}"},
                "controller_worker": {
                    "workers": 1,
                    "amphora_driver": "lab_amphora_driver",
                    "compute_driver": "lab_compute_driver",
                    "network_driver": "allowed_address_pairs_driver",
                    "image_driver": "image_noop_driver",
                    "volume_driver": "volume_noop_driver",
                    "amp_image_tag": "amphora",
                    "amp_flavor_id": 1,
                    "amp_boot_network_list": management_network,
                    "amp_secgroup_list": "",
                    "loadbalancer_topology": "SINGLE",
                    "client_ca": ca,
                    "amp_active_retries": 5,
                    "amp_active_wait_sec": 1,
                    "event_notifications": False,
                },
                "certificates": {
                    "cert_manager": "barbican_cert_manager",
                    # Its user is let into the secrets that its callers name, by their own tokens.
                    "barbican_auth": "barbican_acl_auth",
                    "region_name": "RegionOne",
                    "cert_generator": "local_cert_generator",
                    "ca_certificate": ca,
                    "ca_private_key": key,
                    "server_certs_key_passphrase": _KEY,
                },
                "haproxy_amphora": {
                    "server_ca": ca,
                    "client_cert": ca,
                    "base_path": amphorae,
                    "base_cert_dir": amphorae / "certs",
                    # The sum over the listeners must be below the limit of open files.
                    "default_connection_limit": 1000,
                    # The worker may be here before the API has committed: it looks again at
                    # once, and not after a second, which nearly every change would cost.
                    "api_db_commit_retry_initial_delay": 0,
                    "api_db_commit_retry_backoff": 0,
                    "api_db_commit_retry_attempts": 1000,
                },
                "health_manager": {
                    "heartbeat_key": "insecure",
                    "heartbeat_interval": 2,
                    "bind_ip": "127.0.0.1",
                    "controller_ip_port_list": "127.0.0.1:5555",
                },
                "task_flow": {"engine": "serial"},
                # The ovn provider has these paths built in and ignores others.
                "driver_agent": {
                    "status_socket_path": OCTAVIA_SOCKETS / "status.sock",
                    "stats_socket_path": OCTAVIA_SOCKETS / "stats.sock",
                    "get_socket_path": OCTAVIA_SOCKETS / "get.sock",
                    "enabled_provider_agents": "ovn",
                },
                "ovn": {"ovn_nb_connection": ovn.NORTHBOUND, "ovn_sb_connection": ovn.SOUTHBOUND},
                "quotas": {f"default_{name}_quota": -1 for name in quotas},
            }
        ),
    )
    # The controller worker runs as a thread of the API: both share the in-memory transport. The
    # amphorae are made again before it can change them.
    write_atomic(
        etc / "octavia_wsgi.py",
        f"""\
import threading

from octavia.api import app

application = app.setup_app(argv=["octavia-api", "--config-file", {str(etc / "octavia.conf")!r}])

from lab.openstack.amphora import health
from octavia.controller.queue.v2 import consumer
from oslo_config import cfg


def work():
    health.restore()
    threading.Thread(target=health.beat_for_ever, daemon=True).start()
    consumer.ConsumerService(0, cfg.CONF).run()


threading.Thread(target=work, daemon=True).start()
""",
    )


def write_clouds(paths: Paths) -> None:
    """Write clouds.yaml, in the subset of YAML that is JSON."""
    clouds = {
        cloud: {
            "auth": {
                "auth_url": KEYSTONE_URL,
                "username": user,
                "password": password,
                "project_name": project,
                "user_domain_id": "default",
                "project_domain_id": "default",
            },
            "region_name": "RegionOne",
            "identity_api_version": 3,
            "interface": "public",
        }
        for cloud, (user, password, project) in USERS.items()
    }
    write_atomic(paths.clouds, json.dumps({"clouds": clouds}, indent=1) + "\n", 0o600)


def _service(user: str) -> dict[str, object]:
    return {
        "auth_url": f"{_LOCAL_KEYSTONE}/v3",
        "auth_type": "password",
        "project_domain_id": "default",
        "user_domain_id": "default",
        "project_name": "service",
        "region_name": "RegionOne",
        "username": user,
        "password": SERVICE_PASSWORD,
    }


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
