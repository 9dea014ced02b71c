"""The Service «web» that most tests are about: two endpoints and one port."""

HTTP = ("http", 80)
TWO = {("10.62.0.5", 8080): 1, ("10.62.0.6", 8080): 1}
UP = {("TCP", 80): TWO}


async def run(services, *ports, **spec):
    """A Service with two endpoints is created and served."""
    await services.set_slice("a", "10.62.0.5", "10.62.0.6", ports=[("http", 8080)])
    service = await services.add_service("web", *(ports or (HTTP,)), **spec)
    await services.until_members(UP)
    await services.until_published()
    return service
