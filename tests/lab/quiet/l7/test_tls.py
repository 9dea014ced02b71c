"""Ingresses over TLS with traffic: Secrets, Barbican, Octavia and a haproxy, all of them real."""

import collections
import threading

import pytest

from tests.lab.routers import Authority, cluster

__all__ = ["cluster"]
pytestmark = [pytest.mark.lab_only, pytest.mark.product("router")]
NOBODY, CLOSED = (503, None), (403, None)
RENEWALS = 3


def leading_to_tls(host, path="/"):
    return 308, f"https://{host}{path}"


def served_over_tls(cluster, name, host, secret, to="own"):
    """An Ingress whose host asks for TLS with the certificate of a Secret."""
    tls = [{"hosts": [host], "secretName": secret}]
    return cluster.ingress(name, (host, ("Prefix", "/", to)), tls=tls)


def test_host_with_a_certificate_is_served_over_tls_and_plain_http_leads_there(cluster):
    authority = Authority()
    host, plain = cluster.host("shop"), cluster.host("plain")
    secret, serial = authority.secret(cluster.namespace, "cert", host)
    cluster.apply(*cluster.backend("own"), secret)
    cluster.apply(
        served_over_tls(cluster, "shop", host, "cert"),
        cluster.ingress("plain", (plain, ("Prefix", "/", "own"))),
    )
    cluster.wait_ready("own")
    cluster.until_answered_over_tls({host: "own"}, authority)
    cluster.until_answered({(host, "/x?y=z"): leading_to_tls(host, "/x?y=z"), (plain, "/"): "own"})
    assert cluster.ask_over_tls(host, authority=authority) == ("own", serial)
    assert cluster.ask_over_tls(plain)[0] == NOBODY
    sent = cluster.ask_over_tls(host, "/cgi-bin/headers", authority)[0].splitlines()
    assert "HTTP_X_FORWARDED_PROTO=https" in sent
    assert "HTTP_X_FORWARDED_PORT=443" in sent
    cluster.wait_for(
        "its address is told",
        lambda: cluster.status_of_ingress("shop") == [cluster.router_address()],
    )


@pytest.mark.complete
def test_certificate_is_renewed_and_no_connection_fails_meanwhile(cluster):
    authority, host = Authority(), cluster.host("shop")
    secret, serial = authority.secret(cluster.namespace, "cert", host)
    cluster.apply(*cluster.backend("own"), secret)
    cluster.apply(served_over_tls(cluster, "shop", host, "cert"))
    cluster.wait_ready("own")
    cluster.until_answered_over_tls({host: "own"}, authority)
    over, failed, shown = threading.Event(), [], [serial]

    def ask():
        while not over.is_set():
            answer, number = cluster.ask_over_tls(host, authority=authority)
            if answer == "own":
                shown.append(number)
            else:
                failed.append(answer)

    asking = threading.Thread(target=ask)
    asking.start()
    serials = [serial]
    try:
        for _ in range(RENEWALS):
            secret, serial = authority.secret(cluster.namespace, "cert", host)
            serials.append(serial)
            cluster.apply(secret)
            # the process before shows the former one to those who came while it was there
            cluster.wait_for("the new one is shown", lambda: {*shown[-20:]} == {serials[-1]})
    finally:
        over.set()
        asking.join()
    print(f"{len(shown) - 1} connections, {len(failed)} failed: {collections.Counter(shown)}")
    assert not failed, failed[:5]
    assert set(shown) == set(serials)
    cluster.wait_for("the former ones are gone", lambda: len(cluster.stored("cert")) == 1)


@pytest.mark.complete
def test_host_without_its_secret_is_closed_until_there_is_one(cluster):
    authority = Authority()
    host, other = cluster.host("shop"), cluster.host("other")
    cluster.apply(*cluster.backend("own"))
    # another host's certificate is there, and could be shown
    cluster.apply(authority.secret(cluster.namespace, "other", other)[0])
    cluster.apply(
        served_over_tls(cluster, "other", other, "other"),
        served_over_tls(cluster, "shop", host, "missing"),
    )
    cluster.wait_ready("own")
    cluster.until_answered_over_tls({other: "own"}, authority)
    cluster.until_answered_over_tls({other: "own", host: CLOSED})
    cluster.until_answered({(host, "/"): CLOSED, (other, "/"): leading_to_tls(other)})
    told, serial = cluster.ask_over_tls(host, authority=authority)
    assert serial is None
    assert "certificate verify failed" in told
    cluster.wait_for(
        "the user is told",
        lambda: any(
            reason == "KuryrIngressUnserved" and f"Secret {cluster.namespace}/missing" in message
            for reason, message in cluster.events("shop")
        ),
    )
    assert cluster.status_of_ingress("shop") == []
    secret, serial = authority.secret(cluster.namespace, "missing", host)
    cluster.apply(secret)
    cluster.until_answered_over_tls({other: "own", host: "own"}, authority)
    cluster.until_answered({(host, "/"): leading_to_tls(host)})
    assert cluster.ask_over_tls(host, authority=authority) == ("own", serial)
    cluster.wait_for(
        "its address is told",
        lambda: cluster.status_of_ingress("shop") == [cluster.router_address()],
    )


@pytest.mark.complete
def test_two_hosts_have_their_certificates_by_sni(cluster):
    authority = Authority()
    hosts = {name: cluster.host(name) for name in ("one", "two")}
    serials = {}
    for name, host in hosts.items():
        secret, serials[name] = authority.secret(cluster.namespace, name, host)
        cluster.apply(*cluster.backend(name), secret)
        cluster.apply(served_over_tls(cluster, name, host, name, to=name))
    cluster.wait_ready("one", "two")
    cluster.until_answered_over_tls({host: name for name, host in hosts.items()}, authority)
    for name, host in hosts.items():
        assert cluster.ask_over_tls(host, authority=authority) == (name, serials[name])
        assert len(cluster.stored(name)) == 1
    cluster.delete("ingress", "one")
    cluster.wait_for("its certificate goes", lambda: not cluster.stored("one"))
    cluster.until_answered_over_tls({hosts["one"]: NOBODY})
    assert cluster.ask_over_tls(hosts["two"], authority=authority) == ("two", serials["two"])
