"""Lives of Ingresses on the L7 router."""

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


LIVES = (routed,)
