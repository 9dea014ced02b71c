"""The L7 router: what users do to Ingresses and Routes, and what the router does with requests."""

import json

from kuryr_k8s.k8s.resources import Key
from kuryr_k8s.model.load_balancer import TURNS, L7Rule
from tests.kit.kube.objects import (
    ingress_rules,
    make_ingress,
    make_ingress_class,
    make_l7_router,
    path_of,
)
from tests.kit.lbaas import l7_rules
from tests.kit.load_balancer_services import furnish_outside
from tests.kit.routes import Routes
from tests.kit.service_stage import ServiceStage
from tests.kit.tls import (
    is_of_authorities,
    make_pair,
    make_secret,
    names_in,
    serial_in,
    serial_of,
)

CONTROLLER = "openstack.org/kuryr-l7-router"
HANDLERS = "vif,kuryrport,lbaas_spec,loadbalancer,l7_router,ingress"
WITH_ROUTES = {"kubernetes": {"enabled_handlers": f"{HANDLERS},ocp_route"}}
STATE = "openstack.org/kuryr-l7-router-state"
NAME = "kuryr-l7-router"
DEFAULT, SNI, CA = "default_tls_container_ref", "sni_container_refs", "ca_tls_container_ref"
CONFIG_MAP = f"/api/v1/namespaces/kube-system/configmaps/{NAME}"


def furnish_routers(cloud, options):
    """What the router needs, beside what is outside; the options with its handlers."""
    options = furnish_outside(cloud, options)
    options["kubernetes"]["enabled_handlers"] = HANDLERS
    return options


class RouterStage(ServiceStage):
    """A stage of Services with the handlers of the router, and a class of Ingresses of its own."""

    @property
    def class_name(self):
        return f"kuryr-{self.namespace}"

    @property
    def routes(self):
        return Routes(self)

    @property
    def namespace(self):
        return self.cluster.namespace

    async def add_class(self, name="", controller=CONTROLLER, parameters=None):
        made = make_ingress_class(name or self.class_name, controller, parameters=parameters)
        await self.client.create(made)

    async def delete_class(self, name=""):
        path = f"/apis/networking.k8s.io/v1/ingressclasses/{name or self.class_name}"
        await self.client.delete(path)

    # Operators. The controller of a stage sees the L7Router of the namespace's name alone.

    async def add_router(self, **spec):
        """An L7Router, and a class whose Ingresses it serves; the name of the class."""
        await self.client.create(make_l7_router(self.namespace, **spec))
        name = f"{self.class_name}-routed"
        await self.add_class(name, parameters=parameters_of(self.namespace))
        return name

    async def change_router(self, **spec):
        await self.client.patch(self.router_path, {"spec": spec})

    @property
    def router_path(self):
        return path_of(make_l7_router(self.namespace))

    async def router_status(self):
        found = await self.client.find(self.router_path)
        return (found or {}).get("status") or {}

    async def until_router(self, **shown):
        """Wait until the L7Router is Ready and its status has these fields; its status."""

        async def ready():
            status = await self.router_status()
            if condition_of(status)["status"] == "True" and shown.items() <= status.items():
                return status
            return None

        return await self.until(ready)

    async def until_refused_router(self, text):
        """Wait until its condition says this."""

        async def told():
            found = condition_of(await self.router_status())
            return found["status"] == "False" and text in found["message"]

        await self.until(told)

    async def until_timeout(self, milliseconds):
        """Wait until all listeners of the L7Router's load balancer have this timeout."""

        async def changed():
            [tree] = self.routers(self.other)
            found = {each["timeout_client_data"] for each in tree["listeners"]}
            return found == {milliseconds}

        await self.until(changed)

    async def delete_router(self):
        """Delete the L7Router; return when it is gone."""
        await self.client.delete(self.router_path)
        await self.until_no_router()

    async def until_no_router(self):
        async def gone():
            return await self.client.find(self.router_path) is None

        await self.until(gone)

    # Users.

    async def add_backend(self, name, *addresses):
        """A headless Service, so that no load balancer is made for it, with Pods behind it."""
        await self.add_service(name, ("http", 80), clusterIP="None")
        await self.set_slice(name, *addresses, ports=[("http", 8080)], service=name)

    async def add_ingress(self, name, *rules, class_name="", **spec):
        """Rules are (host, (type, path, service)…)."""
        wanted = make_ingress(
            name,
            *ingress_rules(rules),
            namespace=self.namespace,
            class_name=class_name or self.class_name,
            **spec,
        )
        return await self.client.create(wanted)

    async def add_secret(self, name, *hosts, **how):
        """A Secret with a certificate for hosts; its certificate."""
        return await self._write_secret("POST", name, *hosts, **how)

    async def renew(self, name, *hosts):
        """Replace the certificate in a Secret; the new one."""
        return await self._write_secret("PATCH", name, *hosts)

    async def _write_secret(self, method, name, *hosts, kind="kubernetes.io/tls"):
        certificates, key = make_pair(*hosts)
        body = make_secret(name, self.namespace, certificates, key, kind)
        if method == "POST":
            await self.client.create(body)
        else:
            await self.client.patch(self.secret_path(name), {"data": body["data"]})
        return certificates

    def secret_path(self, name):
        return path_of(make_secret(name, self.namespace, b"", b""))

    async def change_ingress(self, name, *rules):
        patch = {"spec": {"rules": ingress_rules(rules)}}
        await self.client.patch(self.ingress_path(name), patch)

    def ingress_path(self, name):
        return path_of(make_ingress(name, namespace=self.namespace))

    async def delete_ingress(self, name):
        await self.client.delete(self.ingress_path(name))

    async def address(self, name):
        """The address in the status of an Ingress; None without one."""
        status = (await self.client.find(self.ingress_path(name)))["status"]
        shown = (status.get("loadBalancer") or {}).get("ingress") or [{}]
        return shown[0].get("ip")

    async def lose(self, cache, path, *, until):
        """Have a cache lack an object, until the controller has asked the server by that verb.

        Events that are under way would correct it: there are none, nor do later ones come.
        """
        plural = path.split("/")[-2]

        async def is_newest():
            meta = (await self.client.find(path))["metadata"]
            known = cache.get(Key(meta.get("namespace", ""), meta["name"]))
            return known is not None and known.resource_version == meta["resourceVersion"]

        await self.until(is_newest)
        self.proxy.events.hold(plural)
        before = self.proxy.calls.count(until, plural)  # the first call has yet to be answered
        cache._apply("DELETED", await self.client.find(path))

        async def asked():
            return self.proxy.calls.count(until, plural) > before + 1

        await self.until(asked)

    # Looking.

    def routers(self, name=NAME):
        """What the load balancers of routers are and have: the cluster's own, or an L7Router's."""
        return [tree for tree in self.trees() if tree["name"] == name]

    @property
    def other(self):
        """The name of the L7Router's load balancer."""
        return f"{NAME}-{self.namespace}"

    def answer(self, host, path, port=80, router=NAME):
        """Where the router leads a request: the addresses of members, a redirect, or a status."""
        [tree] = self.routers(router)
        [listener] = [each for each in tree["listeners"] if each["protocol_port"] == port]
        for turn in TURNS:
            for policy in listener["policies"]:
                if policy["action"] == turn and _takes(policy, host, path):
                    return _answer(policy)
        return 503

    async def until_answered(self, expected, router=NAME):
        """Wait until requests are answered so: {(host, path): addresses, or a status}."""

        async def answered():
            return bool(self.routers(router)) and all(
                self.answer(*request, router=router) == answer
                for request, answer in expected.items()
            )

        try:
            await self.until(answered)
        except TimeoutError:
            found = {request: self.answer(*request, router=router) for request in expected}
            raise AssertionError(f"{found}, not {expected}") from None

    def shown(self):
        """The DNS names of the certificates that clients are shown, the default one's first."""
        refs = [
            ref
            for tree in super().trees()
            for listener in tree["listeners"]
            if listener["protocol"] == "TERMINATED_HTTPS"
            for ref in (listener[DEFAULT], *listener[SNI])
        ]
        return self._stored_at(refs)

    def trusted(self):
        """The certificates of CAs that pools name, in PEM."""
        refs = {pool[CA] for tree in super().trees() for pool in pools_in(tree)}
        return self._stored_at(refs)

    def _stored_at(self, refs):
        """What Barbican has there."""
        barbican = self.cloud.barbican
        by_ref = {
            barbican.ref(each): barbican.secrets[each]["payload"] for each in barbican.secrets
        }
        return [by_ref[ref] for ref in refs if ref in by_ref]

    async def until_trusted(self, *authorities):
        """Wait until pools name these CAs, in PEM, and no others are stored."""

        async def trusted():
            stored = [each["payload"] for each in self.cloud.barbican.secrets.values()]
            of_authorities = sorted(each for each in stored if is_of_authorities(each))
            return sorted(self.trusted()) == of_authorities == sorted(authorities)

        await self.until(trusted)

    async def until_shown(self, *certificates):
        """Wait until clients are shown these, and no others are stored."""
        serials = {serial_of(each) for each in certificates}

        async def shown():
            payloads = [each["payload"] for each in self.cloud.barbican.secrets.values()]
            stored = [each for each in payloads if not is_of_authorities(each)]
            return serials == {*map(serial_in, self.shown())} == {*map(serial_in, stored)} and len(
                stored
            ) == len(serials)

        await self.until(shown)

    async def until_settled_router(self, *, policies, pools, router=NAME):
        """Wait until the router has so many policies and pools, and no others."""

        async def settled():
            [tree] = self.routers(router)
            there = [policy for each in tree["listeners"] for policy in each["policies"]]
            names = {policy["pool"]["name"] for policy in there if policy["pool"]}
            loose = {pool["name"] for pool in tree["loose_pools"]}
            return len(there) == policies and len(names | loose) == pools

        await self.until(settled)

    async def until_address(self, name):
        """Wait until the Ingress has an address; it."""
        return await self.until(lambda: self.address(name))

    async def until_no_address(self, name):
        """Wait until the Ingress has none any more."""

        async def forgotten():
            return await self.address(name) is None

        await self.until(forgotten)

    async def until_event(self, reason):
        """Wait for an Event with this reason; its note."""

        async def told():
            return next((note for why, note in await self.events() if why == reason), "")

        return await self.until(told)

    async def node_state(self, name):
        """The state in a Node's annotation; None without one."""
        node = await self.client.find(f"/api/v1/nodes/{name}")
        text = (node["metadata"].get("annotations") or {}).get(STATE)
        return None if text is None else json.loads(text)

    async def more_state(self):
        """Ingresses, Routes, certificates and what the Node tells besides."""
        path = f"/apis/networking.k8s.io/v1/namespaces/{self.namespace}/ingresses"
        ingresses = await self.client.list(path)
        routes = await self.client.list(
            f"/apis/route.openshift.io/v1/namespaces/{self.namespace}/routes"
        )
        stored = sorted(
            sorted(names_in(each["payload"])) for each in self.cloud.barbican.secrets.values()
        )
        return await super().more_state() | {
            "Ingresses": ingresses,
            "Routes": [_without_keys(route) for route in routes],
            "certificates": stored,
            "L7Router": await self.router_status(),
            "told": await self.node_state(self.node),
        }

    def trees(self):
        """What all load balancers are and have, with certificates by the names in them."""
        barbican = self.cloud.barbican
        names = {
            barbican.ref(each): sorted(names_in(secret["payload"]))
            for each, secret in barbican.secrets.items()
        }
        found = super().trees()
        for listener in (listener for tree in found for listener in tree["listeners"]):
            first, others = listener[DEFAULT], listener[SNI]
            listener[DEFAULT] = first and names.get(first, first)
            listener[SNI] = sorted(names.get(other, other) for other in others)
        for pool in (pool for tree in found for pool in pools_in(tree)):
            pool[CA] = names.get(pool[CA], pool[CA])
        return found

    async def is_published(self):
        """Does the Node tell the floating IP of the router?"""
        node = await self.client.find(f"/api/v1/nodes/{self.node}")
        text = (node["metadata"].get("annotations") or {}).get(STATE, "")
        return any(
            f'"fip": "{each["floating_ip_address"]}"' in text
            for each in self.cloud.floating_ips.values()
        )

    async def config_map(self):
        return ((await self.client.find(CONFIG_MAP)) or {}).get("data")


def parameters_of(name):
    """The parameters of a class that name an L7Router."""
    return {"apiGroup": "openstack.org", "kind": "L7Router", "name": name}


def condition_of(status):
    """The condition of an L7Router; one that says nothing if it has none."""
    return next(iter(status.get("conditions") or ()), {"status": "", "message": ""})


def _without_keys(route):
    """The Route without what differs between two lives."""
    if "tls" in route["spec"]:
        for name in ("certificate", "key", "destinationCACertificate"):
            route["spec"]["tls"].pop(name, None)
    return route


def _takes(policy, host, path):
    rules = [
        L7Rule(rule["type"], rule["compare_type"], rule["value"], rule["invert"])
        for rule in policy["rules"]
        if rule["admin_state_up"]
    ]
    return (
        policy["admin_state_up"]
        and bool(rules)
        and all(l7_rules.matches(rule, host, path) is not rule.invert for rule in rules)
    )


def _answer(policy):
    if policy["action"] == "REJECT":
        return 403
    if policy["pool"] is None:
        return policy["redirect_http_code"], policy["redirect_prefix"]
    members = policy["pool"]["members"]
    return {member["address"] for member in members if member["weight"]} or 503


def pools_in(tree):
    """The pools of a load balancer; one to which several policies lead is there several times."""
    led_to = [each["pool"] for listener in tree["listeners"] for each in listener["policies"]]
    default = [listener["pool"] for listener in tree["listeners"]]
    return [pool for pool in (*led_to, *default, *tree["loose_pools"]) if pool]


def pool_of(tree, name):
    """The pool of this name; None without one."""
    return next((pool for pool in pools_in(tree) if pool["name"] == name), None)


def weights_of(tree, pool):
    """{address: weight} of the members of a pool."""
    found = pool_of(tree, pool)
    return {member["address"]: member["weight"] for member in found["members"]}
