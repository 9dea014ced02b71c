"""Faults by class, and which of them a sample has at a write.

Both crashes strike every write that no other life strikes. Of the other faults, which the
controller survives, a sample has one of each class for every kind of write in a life: the
session's seed chooses the fault and which of these writes it strikes.
"""

import random

from tests.kit.controllers import Crash
from tests.kit.fakes.faults import Hang, answer, cut, garble, lose_reply

CRASHES = {
    "crash before": lambda: Crash(applied=False),
    "crash after": lambda: Crash(applied=True),
}
UNANSWERED = {  # applied, but the controller does not hear of it
    "reply lost": lose_reply,
    "garbled": garble,
    "500 applied": lambda: answer(500, applied=True),
}
REFUSED = {  # not applied
    "500": lambda: answer(500),
    "503": lambda: answer(503),
    "429": lambda: answer(429, retry_after=1),
    "409": lambda: answer(409),
    "cut": cut,
}
HANGS = {"time-out": Hang, "time-out applied": lambda: Hang(applied=True)}
AT_READS = (
    {name: REFUSED[name] for name in ("500", "503", "429")},
    {"cut": cut, "garbled": garble},
)
COLUMNS = tuple(CRASHES | UNANSWERED | REFUSED | HANGS)


class Choice:
    """What a session runs of the whole product of lives, requests and faults."""

    def __init__(self, seed, *, everything):
        self.seed = seed
        self.everything = everything

    def at_write(self, life, record, place):
        """Return the faults that strike this write, by name."""
        answers = (UNANSWERED, REFUSED) if place.side in life.answers else ()
        if self.everything:
            return CRASHES | {name: fault for faults in answers for name, fault in faults.items()}
        shared = record.before[life.shared] if life.shared else ()
        if place in shared:
            return {}
        alike = [
            target
            for target in life.targets(record)
            if target[:3] == place[:3] and target not in shared
        ]
        if self._random(life, place[:3]).choice(alike) != place:
            return self._one_of_each((CRASHES,), life, place)
        return CRASHES | self._one_of_each(answers, life, place)

    def at_read(self, life, place):
        """Return the faults that strike this question, by name."""
        if self.everything:
            return AT_READS[0] | AT_READS[1]
        return self._one_of_each(AT_READS, life, place)

    def in_a_pair(self, life, places, faults, *, slow):
        """Return the writes that are struck, each with its faults by name.

        A sample has one fault for every kind of write, at one of the writes of that kind; of the
        slow ones it has none.
        """
        if self.everything:
            return [(place, faults | slow) for place in places]
        chosen = []
        for kind in dict.fromkeys(place[:3] for place in places):
            choose = self._random(life, f"{kind} in a pair").choice
            place = choose([place for place in places if place[:3] == kind])
            name = choose(sorted(faults))
            chosen.append((place, {name: faults[name]}))
        return chosen

    def frozen(self, life, record, *, of=3):
        """Return the writes in the midst of which the controller is frozen, or ended.

        :param of: a sample has one in so many.
        """
        if self.everything:
            return record.writes
        return self._random(life, "frozen").sample(record.writes, -(-len(record.writes) // of))

    def _one_of_each(self, classes, life, place):
        chosen = self._random(life, place)
        names = [chosen.choice(sorted(faults)) for faults in classes]
        return {name: faults[name] for name, faults in zip(names, classes, strict=True)}

    def _random(self, life, what):
        """Return a source of choices for one place of a life, the same for the same seed."""
        return random.Random(f"{self.seed}: {life} at {what}")


def whole_product(life, record):
    """Return how many runs of a life there would be with every fault at every write."""
    answered = [place for place in life.targets(record) if place.side in life.answers]
    per_answer = len(UNANSWERED) + len(REFUSED)
    return len(life.targets(record)) * len(CRASHES) + len(answered) * per_answer
