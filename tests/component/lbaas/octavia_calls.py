"""Calls of Octavia, and faults of any of them."""

from tests.kit.fakes.faults import WRITES, answer, cut, from_proxy, garble, lose_reply

FAULTS = {
    "reply lost": lose_reply(),
    "not sent": cut(),
    "half a reply": garble(),
    "500 applied": answer(500, applied=True),
    "503": answer(503),
    "409": answer(409, message="Load Balancer x is immutable and cannot be updated."),
    "404": answer(404),
    "404 of a proxy": from_proxy(404),
}


def calls(cloud, *, writes):
    """Those of Octavia since the last clear."""
    return [
        f"{call.method} {call.what.rpartition('/lbaas/')[2]}"
        for call in cloud.calls
        if "/lbaas/" in call.path and (call.method in WRITES) == writes
    ]
