"""Lives of Ingresses and Routes on the L7 router."""

from tests.kit.l7 import WITH_ROUTES
from tests.kit.routes import edge, reencrypt
from tests.kit.tls import make_authority, pem_of
from tests.lives.life import life

ONE, TWO = {"10.62.0.5"}, {"10.62.0.6"}


@life(environment="routers")
async def routed(stage, _keeper, at):
    """It is served, gets another path, leads elsewhere, and is deleted; the router stays."""
    await stage.add_class()
    await stage.add_backend("one", *ONE)
    await stage.add_backend("two", *TWO)
    await stage.until(stage.is_published)
    await at("empty")
    await stage.add_ingress("shop", ("a", ("Prefix", "/", "one")))
    await stage.until_address("shop")
    await at("served")
    await stage.change_ingress("shop", ("a", ("Prefix", "/", "one"), ("Exact", "/x", "two")))
    await stage.until_answered({("a", "/"): ONE, ("a", "/x"): TWO})
    await stage.until_settled_router(policies=2, pools=2)
    await at("two paths")
    await stage.change_ingress("shop", ("a", ("Prefix", "/", "two")))
    await stage.until_answered({("a", "/"): TWO, ("a", "/x"): TWO})
    await stage.until_settled_router(policies=1, pools=1)
    await at("elsewhere")
    await stage.delete_ingress("shop")
    await stage.until_settled_router(policies=0, pools=0)
    await at("end")


@life(environment="routers", options={"l7_router": {"tls": "true"}}, shared="empty")
async def secure(stage, _keeper, at):
    """It is served over TLS, its certificate is renewed, a second one comes and both go."""
    await stage.add_class()
    await stage.add_backend("one", *ONE)
    await stage.until(stage.is_published)
    await at("empty")
    certificate = await stage.add_secret("cert", "a")
    tls = [{"hosts": ["a"], "secretName": "cert"}]
    await stage.add_ingress("shop", ("a", ("Prefix", "/", "one")), tls=tls)
    await stage.until_address("shop")
    await stage.until_shown(certificate)
    await at("served")
    certificate = await stage.renew("cert", "a")
    await stage.until_shown(certificate)
    await at("renewed")
    other = await stage.add_secret("other", "b")
    tls = [{"hosts": ["b"], "secretName": "other"}]
    await stage.add_ingress("second", ("b", ("Prefix", "/", "one")), tls=tls)
    await stage.until_address("second")
    await stage.until_shown(certificate, other)
    await at("two hosts")
    await stage.delete_ingress("shop")
    await stage.until_shown(other)
    await stage.delete_ingress("second")
    await stage.until_shown()
    await stage.until_settled_router(policies=0, pools=0)
    await at("end")


@life(
    environment="routers",
    options=WITH_ROUTES | {"l7_router": {"tls": "true", "route_domain": "apps"}},
    shared="empty",
)
async def route(stage, _keeper, at):
    """It gets a host, two Services by weight, TLS, also to the Pods, and back, and is deleted."""
    await stage.add_backend("one", *ONE)
    await stage.add_backend("two", *TWO)
    await stage.until(stage.is_published)
    await at("empty")
    host = f"shop-{stage.namespace}.apps"
    await stage.routes.add("shop")
    await stage.until_answered({(host, "/"): ONE})
    await stage.routes.until_admitted("shop")
    await at("served")
    more = [{"kind": "Service", "name": "two", "weight": 50}]
    await stage.routes.change("shop", alternateBackends=more)
    await stage.until_answered({(host, "/"): ONE | TWO})
    await at("two Services")
    tls, certificate = edge(host, insecure="Redirect")
    await stage.routes.change("shop", tls=tls)
    await stage.until_shown(certificate)
    await stage.until_answered({(host, "/"): (302, f"https://{host}")})
    await stage.until_settled_router(policies=2, pools=1)
    await at("over TLS")
    authority = pem_of(make_authority()[0])
    await stage.routes.change("shop", tls=tls | reencrypt(authority, insecure="Redirect")[0])
    await stage.until_trusted(authority)
    await stage.until_settled_router(policies=2, pools=1)
    await at("over TLS to the Pods")
    await stage.routes.change("shop", tls=None)
    await stage.until_answered({(host, "/"): ONE | TWO})
    await stage.until_shown()
    await stage.until_trusted()
    await stage.until_settled_router(policies=1, pools=1)
    await at("plain again")
    await stage.routes.delete("shop")
    await stage.until_settled_router(policies=0, pools=0)
    await at("end")


@life(environment="routers", shared="empty")
async def further(stage, _keeper, at):
    """An L7Router is made, serves an Ingress, gets other settings, and both are deleted."""
    await stage.add_backend("one", *ONE)
    await stage.until(stage.is_published)
    await at("empty")
    name = await stage.add_router(timeoutClientData=60000)
    await stage.until_router()
    await at("made")
    await stage.add_ingress("shop", ("a", ("Prefix", "/", "one")), class_name=name)
    await stage.until_answered({("a", "/"): ONE}, router=stage.other)
    await stage.until_address("shop")
    await at("served")
    await stage.change_router(timeoutClientData=90000)
    await stage.until_timeout(90000)
    await stage.until_router(observedGeneration=2)
    await at("changed")
    await stage.delete_ingress("shop")
    await stage.until_settled_router(policies=0, pools=0, router=stage.other)
    await stage.delete_router()
    await at("end")


LIVES = (routed, secure, route, further)
