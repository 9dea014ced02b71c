"""What is done to pools, each time with what is to come of it."""

from kuryr_k8s.drivers.pools.resources import Kind, Resource
from tests.kit.pools.model import PoolModel
from tests.kit.pools.ports import port_of


class PoolSteps(PoolModel):
    """:ivar quota: ports that Neutron lets each project have."""

    quota = 9

    # -- Pods

    def ask(self, key, claim):
        if claim in self.recorded.values():
            return  # its KuryrPort names the port already
        best = []
        if not self.queues[key]:
            free = self.pool(key, "available")
            checked = [port for port in self.pool(key, "returning") if port in self.checked]
            best = [*filter(self.is_parked, free), *free, *checked]
        port = self.state.take(key, claim, self.now)
        if claim in self.has:
            assert port.id == self.has[claim]
            return
        for other, queue in self.queues.items():
            if claim in queue and (best or other != key):
                queue.remove(claim)
        self.closed.discard(key)
        self.resting.discard(key)
        self.used[key] = self.now
        if best:
            assert port.id == best[0]
            self.promise(key, claim, port)
        else:
            assert port is None
            self.queues[key] += [claim] if claim not in self.queues[key] else []

    def return_port(self, port):
        key = self.key_of[port]
        free = len(self.pool(key, "available")) + len(self.pool(key, "returning"))
        full = self.limits.maximum and free - len(self.queues[key]) >= self.limits.maximum
        for _ in range(2):  # Kubernetes may say it again
            assert self.state.return_port(port, self.now)
            expected = "leaving" if full or key in self.closed else "returning"
            assert self.state.phase(port) == expected
        self.forget(port)
        self.used[key] = self.now

    def return_ports_of(self, pod):
        mine = [port for claim, port in self.has.items() if claim.pod_uid == pod]
        for queue in self.queues.values():
            queue[:] = [claim for claim in queue if claim.pod_uid != pod]
        assert sorted(self.state.return_ports_of(pod, self.now)) == sorted(mine)
        for port in mine:
            self.used[self.key_of[port]] = self.now
            self.forget(port)

    def change_mind(self, key, claim):
        """Ask for another port: whether a KuryrPort names the first one nobody can tell."""
        port = self.has.pop(claim)
        self.state.set_aside(claim)
        self.recorded[port] = claim._replace(ifname="aside")
        assert self.state.record(port).holder.pod_uid == claim.pod_uid
        self.ask(key, claim)

    def orphan(self, port):
        self.state.dismiss_orphan(port, self.now)
        assert self.state.phase(port) == "leaving"
        self.forget(port)
        self.used[self.key_of[port]] = self.now

    # -- Neutron

    def create(self, key, count, outcome):
        if not count:
            return
        self.state.begin(key, count, self.now)
        taken = sum(port.key.project_id == key.project_id for port in self.neutron.values())
        wished = {"some": count // 2, "none": 0}.get(outcome, count)
        made = []
        for _ in range(min(wished, max(0, self.quota - taken))):
            self.made += 1
            made.append(port_of(f"port{self.made:04}", key, fit=outcome != "unfit"))
        self.neutron |= {port.id: port for port in made}
        self.creations.append((key, count, made, [] if outcome == "lost" else made))

    def creation_is_answered(self, creation):
        key, count, made, told = creation
        told = [port for port in told if port.id not in self.buried]
        self.serve(self.state.made(key, count, told, self.now))
        if len(made) < count:
            self.others_give(key)

    def others_give(self, key):
        """For those who wait, and one who may come."""
        project, needed = key.project_id, len(self.queues[key]) + 1
        giving = [
            pool
            for pool in self.state.pools.values()
            if pool.key.project_id == project and not pool.waiting
        ]
        free = {pool.key: set(pool.available) for pool in giving}
        cooling = {pool.key: set(pool.returning) for pool in giving}
        helped = self.state.reclaim(Resource(Kind.PROJECT, project), needed, self.now)
        left = self.left_of(free)
        assert len(left) == min(needed, sum(map(len, free.values())))
        fullest = max((len(ports) for ports in free.values() if ports - left), default=0)
        assert not any(ports & left for ports in free.values() if len(ports) < fullest)
        more = self.left_of(cooling)
        assert len(more) == min(needed - len(left), sum(map(len, cooling.values())))
        assert sum(helped.values()) == len(left | more)
        given = {other: (free[other] | cooling[other]) & (left | more) for other in helped}
        assert {other: len(ports) for other, ports in given.items()} == dict(helped)

    def left_of(self, ports_of_pools):
        """Return those of the ports that are leaving by now."""
        ports = {port for ports in ports_of_pools.values() for port in ports}
        return {port for port in ports if self.state.phase(port) == "leaving"}

    def survey_begins(self):
        known = {port.id for port in self.state.ports()}
        self.surveys.append((known, list(self.neutron.values())))

    def survey_ends(self):
        known, listed = self.surveys.pop(0)
        for port in sorted(known - {port.id for port in listed}):
            self.bury(port)
        for port in listed:
            if port.id not in self.buried:
                before = self.state.phase(port.id)
                claim = self.state.adopt(port, self.now)
                self.serve([claim] if claim else [])
                assert not before or self.state.phase(port.id) == before

    def vanish(self, port):
        """Others delete a port in use; a survey finds it gone, and its Pod asks for another."""
        key = self.key_of[port]
        claims = [claim for claim, held in self.has.items() if held == port]
        self.bury(port)
        for claim in claims:
            self.observe()
            self.ask(key, claim)

    def start_again(self, held):
        """:param held: claims of ports that KuryrPorts name, by port id."""
        held = {port: it for port, it in (held | self.recorded).items() if port in self.neutron}
        self.start()
        for port in self.neutron.values():
            holder = held[port.id].pod_uid if port.id in held else None
            self.state.recover(port, holder, self.now)
        self.recorded = held

    # -- the way back

    def check(self, key, changed):
        """Of the ports that came back; the one of this number was changed by others, or, where
        it is negative, cannot be checked."""
        for index, port in enumerate(self.checking.pop(key)):
            if port not in self.neutron:
                self.bury(port)
            elif index + 1 == changed:
                self.dismiss(port)
                self.restore(key, port)  # it is too late for that
            elif index + 1 == -changed:
                self.state.check_failed(port)
                if port in self.pool(key, "returning"):
                    self.doubtful.add(port)
            else:
                self.restore(key, port)
            self.observe()

    def restore(self, key, port):
        before = self.state.phase(port)
        claim = self.state.passed(self.neutron[port], self.now)
        if before == "returning":
            assert (claim is None) == (not self.queues[key])
            self.serve([claim] if claim else [])
            self.checked |= set() if claim else {port}
            self.doubtful.discard(port)
        else:
            assert claim is None
            assert self.state.phase(port) == before

    def tidy(self, key):
        returned = self.pool(key, "returning")
        cooled = [
            port
            for port in returned
            if port in self.checked and self.now - self.since[port] >= self.limits.cooldown
        ]
        if key in self.state.pools:
            self.state.pools[key].cool(self.now)
        for port in returned:
            assert self.state.phase(port) == ("available" if port in cooled else "returning")
        self.observe()
        free = self.pool(key, "available")
        kept, idle = list(free), key in self.used and self.is_idle(key)
        while kept and (idle or self.is_too_much(key, kept)):
            kept.pop(0)
        self.state.shrink(key, self.now)
        for port in free:
            assert self.state.phase(port) == ("available" if port in kept else "leaving")
        for port in set(returned) - set(cooled):
            assert self.state.phase(port) == ("leaving" if idle else "returning")

    def is_too_much(self, key, free):
        old = self.limits.ttl and self.now - self.since[free[0]] >= self.limits.ttl
        excess = self.limits.maximum and len(free) > self.limits.maximum
        return excess or (old and len(free) > self.target(key))

    def dismiss(self, port):
        before = self.state.phase(port)
        self.state.dismiss(port, self.now)
        assert self.state.phase(port) == (before if before in (None, "in_use") else "leaving")

    # -- nodes and people

    def park(self, told, place):
        here = {port for port in told if port in self.key_of and self.key_of[port].place == place}
        elsewhere = {port for port in self.parked if self.key_of[port].place != place}
        unplugged = self.parked & {p for p, key in self.key_of.items() if key.place == place}
        unplugged -= here
        self.parked = elsewhere | here
        assert self.state.set_parked(place, frozenset(told)) == unplugged

    def close(self, key):
        waited, self.queues[key] = self.queues[key], []
        if key in self.state.pools:
            self.closed.add(key)
        assert self.state.close(key, self.now) == waited

    def refuse(self, key):
        waited, self.queues[key] = self.queues[key], []
        assert self.state.refuse(key) == waited

    def free(self, key, count):
        free = self.pool(key, "available")
        assert self.state.empty(key, count, self.now) == len(free[:count])
        if key in self.state.pools:
            self.resting.add(key)
        for index, port in enumerate(free):
            freed = count is None or index < count
            assert self.state.phase(port) == ("leaving" if freed else "available")

    def populate(self, key, count):
        self.closed.discard(key)
        self.resting.discard(key)
        self.used[key] = self.now
        self.state.order(key, count, self.now)
        assert self.state.pools[key].ordered >= count
