"""What Octavia's rules of L7 policies match, as haproxy evaluates them."""

import re

from kuryr_k8s.model.load_balancer import TURNS


def matches(rule, host, path):
    """Does a request match the rule, invert aside?"""
    value, flags = (host, re.IGNORECASE) if rule.type == "HOST_NAME" else (path, 0)
    if rule.compare_type == "REGEX":
        return re.search(rule.value, value, flags) is not None
    if rule.compare_type == "STARTS_WITH":
        return value.startswith(rule.value)
    assert rule.compare_type == "EQUAL_TO"
    return value == rule.value


def all_match(policy, host, path):
    """Do all rules of a policy match a request?"""
    return all(matches(rule, host, path) is not rule.invert for rule in policy.rules)


def taken(found, takes):
    """What becomes of a request to the first listener: its policies are looked at in Octavia's
    order, and `takes` tells whether the rules of one match the request."""
    names = {each.id: each.pool.name for each in found.pools}
    looked_at = [each for each in found.listeners[0].policies if each.is_enabled]
    for turn in TURNS:
        for each in looked_at:
            policy = each.policy
            if policy.action == turn and policy.rules and takes(policy):
                return turn, names.get(each.pool_id), policy.redirect_prefix
    return None
