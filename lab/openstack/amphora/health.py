"""Heartbeats of the amphorae, and the amphorae's return after the lab was down.

Octavia's health manager gets the heartbeats; its failovers are not there.
"""

from __future__ import annotations

import time
from typing import Any

from octavia.amphorae.backends.health_daemon import (  # type: ignore[import-not-found]
    health_daemon,
)
from octavia.amphorae.drivers.health import heartbeat_udp  # type: ignore[import-not-found]
from octavia.common import constants  # type: ignore[import-not-found]
from octavia.common.config import cfg  # type: ignore[import-not-found]
from octavia.db import api, models, repositories  # type: ignore[import-not-found]
from oslo_log import log

from lab.openstack.amphora.machine import LOCK, Amphora, all_amphorae
from lab.openstack.amphora.programs import Haproxy, forward_datagrams

_LOG = log.getLogger(__name__)
_MESSAGE_VERSION = 3  # statistics are what was added since the last one
_FIGURES = {"tx": "bout", "rx": "bin", "totconns": "stot", "ereq": "ereq"}


def restore() -> None:
    """Restore the amphorae that are not there any more, before Octavia's worker starts.

    An amphora that Octavia's database does not know was being made when all ended. What else was
    being done then would stay PENDING for ever, since the worker's queue was in memory.
    """
    _give_up_unfinished()
    for amphora in all_amphorae():
        try:
            if _is_known(amphora):
                amphora.restore()
                forward_datagrams(amphora)
            else:
                amphora.destroy()
        except Exception:
            _LOG.exception("%s cannot be restored", amphora.netns)


def beat_for_ever() -> None:
    """Send a heartbeat of each amphora every heartbeat_interval, and start haproxies that ended.

    No failure ends this.
    """
    updater = heartbeat_udp.UpdateHealthDb()
    while True:
        try:
            _beat_all(updater)
        except Exception:
            _LOG.exception("not all amphorae are known: no heartbeat of those after")
        time.sleep(cfg.CONF.health_manager.heartbeat_interval)


def _beat_all(updater: Any) -> None:
    for amphora in all_amphorae():
        # Octavia deletes an amphora that beats before it has a load balancer.
        if amphora.vips:
            try:
                _beat(amphora, updater)
            except Exception:
                _LOG.exception("no heartbeat of %s", amphora.netns)


def _give_up_unfinished() -> None:
    balancer = models.LoadBalancer
    pending = balancer.provisioning_status.startswith("PENDING_")
    with api.session().begin() as session:
        found = session.query(balancer).filter(balancer.provider == "amphora", pending)
        found.update({"provisioning_status": constants.ERROR}, synchronize_session=False)


def _is_known(amphora: Amphora) -> bool:
    with api.session().begin() as session:
        row = repositories.AmphoraRepository().get(session, compute_id=amphora.compute_id)
    return row is not None and row.status != constants.DELETED


def _beat(amphora: Amphora, updater: Any) -> None:
    haproxy = Haproxy(amphora)
    with LOCK:
        if not amphora.exists:
            return
        if haproxy.wanted and haproxy.pid is None:
            _LOG.warning("haproxy of %s does not run: starting it", amphora.netns)
            haproxy.start()
    listeners: dict[str, Any] = {}
    pools: dict[str, Any] = {}
    if haproxy.pid is not None:
        rows, pools = health_daemon.get_stats(str(haproxy.socket))
        for row in rows:
            if row["svname"] == "FRONTEND":
                added = health_daemon.calculate_stats_deltas(row["pxname"], row)
                figures = {ours: added[theirs] for ours, theirs in _FIGURES.items()}
                figures["conns"] = int(row["scur"])
                listeners[row["pxname"]] = {"status": row["status"], "stats": figures}
    for listener, each in amphora.datagrams.items():
        none = dict.fromkeys((*_FIGURES, "conns"), 0)
        listeners[listener] = {"status": constants.OPEN, "stats": none}
        if each["pool"] is not None:
            members = dict.fromkeys(each["member_ids"], constants.NO_CHECK)
            pools[f"{each['pool']}:{listener}"] = {"status": constants.UP, "members": members}
    message = {
        "id": amphora.amphora_id,
        "seq": 0,
        "ver": _MESSAGE_VERSION,
        "listeners": listeners,
        "pools": pools,
        "recv_time": time.time(),
    }
    updater.update_health(message, "local")
    heartbeat_udp.update_stats(message)
