"""What Octavia's refusals are about; that they are worded so is for the contract tests."""

import pytest

from kuryr_k8s import errors
from kuryr_k8s.cloud.octavia import refusals as octavia_refusals

OVN = "Provider 'ovn' does not support a requested option: OVN provider does not support "
INVALID = "Validation failure: "


@pytest.mark.parametrize(
    ("status", "text", "feature"),
    [
        (501, f"{OVN}allowed_cidrs option", "allowed_cidrs"),
        (501, f"{OVN}ROUND_ROBIN algorithm", "lb_algorithm"),
        (501, f"{OVN}HTTP protocol", "protocol"),
        (501, f"{OVN}HTTP health monitor type. Supported types: TCP", "health_monitor"),
        (501, f"{OVN}HTTP_COOKIE session persistence.", "persistence"),
        (501, f"{OVN}something new", ""),
        (
            400,
            "insert-headers is not a valid option for a TCP protocol listener.",
            "insert_headers",
        ),
        (
            400,
            "The selected protocol is not allowed in this deployment: TERMINATED_HTTPS",
            "protocol",
        ),
        (400, "Could not retrieve certificate: ['x']", "default_tls_container_ref"),
        (
            400,
            f"{INVALID}Allowed CIDRs are not allowed when using custom VIP Security Groups.",
            "allowed_cidrs",
        ),
        (400, f"{INVALID}Invalid TLS versions: TLSv9", "tls_versions"),
        (400, f"{INVALID}Requested TLS versions are less than the minimum: TLSv1", "tls_versions"),
        (400, f"{INVALID}Invalid characters in cipher string. Only", "tls_ciphers"),
        (
            400,
            f"{INVALID}The following ciphers have been prohibited by an administrator: AES",
            "tls_ciphers",
        ),
        (
            400,
            f"{INVALID}The client authentication CA certificate is invalid. It must be",
            "client_authentication",
        ),
        (
            400,
            f"{INVALID}The CRL specified is not valid for client certificate authority",
            "client_authentication",
        ),
        (400, "Validation failure: Invalid flavor_id.", "flavor_id"),
        (400, "Validation failure: Invalid availability zone.", "availability_zone"),
        (400, "Provider 'nobody' is not enabled.", "provider"),
        (400, "Unknown attribute for argument listener: allowed_cidrs", "allowed_cidrs"),
        (400, "Unknown attribute for argument pool_.pool: healthmonitor", "health_monitor"),
        (
            400,
            "Unknown attribute for argument load_balancer.loadbalancer.listeners: allowed_cidrs",
            "allowed_cidrs",
        ),
        (400, "Invalid input for field/attribute delay. Value: '-1'. Value", "health_monitor"),
        (400, "Invalid input for field/attribute url_path. Value: 'x'. Value", "health_monitor"),
        (400, "url_path is not a valid option for health monitors of type TCP", "health_monitor"),
        (
            400,
            "Invalid input for field/attribute connection_limit. Value: '-2'. Value should be",
            "connection_limit",
        ),
    ],
)
def test_what_cannot_be_done_is_unsupported_and_says_what_it_is(status, text, feature):
    with pytest.raises(errors.Unsupported) as caught, octavia_refusals.named():
        raise errors.BadRequest(text, status=status, request_id="req-1")
    error = caught.value
    assert (error.feature, error.brief, error.status) == (feature, text, status)
    assert error.request_id == "req-1"


@pytest.mark.parametrize(
    "error",
    [
        errors.BadRequest("Validation failure: The request is bad.", status=400),
        errors.BadRequest("Policy does not allow this request to be performed.", status=403),
        errors.OverQuota("Quota has been met for resources: Health Monitor", status=403),
        errors.Conflict("This pool already has a health monitor", status=409),
    ],
    ids=str,
)
def test_any_other_answer_stays_what_it_is(error):
    with pytest.raises(errors.CloudError) as caught, octavia_refusals.named():
        raise error
    assert caught.value is error
