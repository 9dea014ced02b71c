"""What Octavia's rules of L7 policies match, as haproxy evaluates them."""

import re


def matches(rule, host, path):
    """Does a request match the rule, invert aside?"""
    value, flags = (host, re.IGNORECASE) if rule.type == "HOST_NAME" else (path, 0)
    if rule.compare_type == "REGEX":
        return re.search(rule.value, value, flags) is not None
    if rule.compare_type == "STARTS_WITH":
        return value.startswith(rule.value)
    assert rule.compare_type == "EQUAL_TO"
    return value == rule.value
