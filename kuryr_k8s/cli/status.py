"""``kuryr-k8s status``: the Lease in the API server, and the controller of this host."""

from datetime import UTC, datetime
from typing import Any

from oslo_config import cfg

from kuryr_k8s import errors
from kuryr_k8s.cli.local import ControllerError, LocalController, host_of
from kuryr_k8s.cli.table import table
from kuryr_k8s.k8s import connect
from kuryr_k8s.k8s.resources import LEASES, Key

Json = dict[str, Any]


async def report(controller: LocalController, conf: cfg.ConfigOpts | None) -> Json:
    """Collect what is known, as JSON.

    ``leader`` is empty where no controller leads, or where it is not known which one does.

    :param conf: describes how to reach the API server; None: only the controller is asked.
    """
    problems: list[str] = []
    state: Json | None = None
    lease: Json | None = None
    try:
        state = await controller.get("/status")
    except ControllerError as error:
        problems.append(str(error))
    if conf is not None:
        try:
            lease = await _lease(conf)
        except errors.KuryrError as error:
            # a configuration without the API server's address is enough to ask the controller
            if state is None or not isinstance(error, errors.ConfigError):
                problems.append(f"the Lease cannot be read: {error}")
    leader = ""
    if lease is not None:
        leader = "" if lease["expired"] else lease["holder"]
    elif state is not None:
        leader = state["lease"]["holder"] if state["lease"]["expires_in"] > 0 else ""
    return {
        "leader": leader,
        "lease": lease,
        "url": controller.address,
        "controller": state,
        "problems": problems,
    }


async def _lease(conf: cfg.ConfigOpts) -> Json:
    """Read the Lease; its age compares this host's clock with the holder's."""
    key = Key(conf.kubernetes.lease_namespace, conf.kubernetes.lease_name)
    kube = await connect.connect(conf, calls=1)
    try:
        spec = (await kube.get(LEASES, key)).get("spec", {})
    finally:
        await kube.close()
    renewed = spec.get("renewTime")
    age = (datetime.now(UTC) - datetime.fromisoformat(renewed)).total_seconds() if renewed else 0.0
    lasts = spec.get("leaseDurationSeconds") or 0
    return {
        "namespace": key.namespace,
        "name": key.name,
        "holder": spec.get("holderIdentity") or "",
        "renewed_ago": round(age, 1),
        "duration": lasts,
        "transitions": spec.get("leaseTransitions") or 0,
        "expired": age > lasts,
    }


def text(report: Json) -> str:
    """Format the report for people."""
    lines = [f"leader      {host_of(report['leader']) or 'none'}"]
    if lease := report["lease"]:
        state = "released" if not lease["holder"] else "expired" if lease["expired"] else "held"
        lines.append(
            f"lease       {lease['namespace']}/{lease['name']}: {state}, renewed "
            f"{lease['renewed_ago']} s ago, lasts {lease['duration']} s, "
            f"{lease['transitions']} transitions"
        )
    if own := report["controller"]:
        if lease is None:
            lease = own["lease"]
            lines.append(
                f"lease       {lease['namespace']}/{lease['name']}: expires in "
                f"{lease['expires_in']} s, {lease['transitions']} transitions"
            )
        does = "leads" if own["leading"] else "stands by"
        lines.append(f"controller  {report['url']} on {host_of(own['identity'])}: {does}")
        calls = ", ".join(f"{name} {number}" for name, number in own["calls"].items())
        lines += [f"in flight   {calls}", "", _caches(own), "", _queues(own)]
    return "\n".join([*lines, *(f"problem     {problem}" for problem in report["problems"])])


def _caches(own: Json) -> str:
    rows = [
        (name, cache["objects"], "yes" if cache["synced"] else "no")
        for name, cache in own["caches"].items()
    ]
    return table(("CACHE", "OBJECTS", "SYNCED"), rows)


def _queues(own: Json) -> str:
    rows = [(name, queue["waiting"], queue["active"]) for name, queue in own["queues"].items()]
    return table(("QUEUE", "WAITING", "ACTIVE"), rows)
