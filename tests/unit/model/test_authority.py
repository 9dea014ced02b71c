"""CAs are read as Routes have them, and bundled as Octavia takes them."""

import pytest
from cryptography import x509

from kuryr_k8s.model.authority import read_authority
from kuryr_k8s.model.certificate import LONGEST, UnusableCertificate
from tests.kit.tls import HOSTILE, make_authority, pem_of

ONE, TWO = (make_authority(name)[0] for name in ("one", "two"))


def test_bundle_has_all_certificates_once_in_their_order_and_nothing_else():
    text = b"about it\n" + pem_of(TWO) + b"\nmore\r\n" + pem_of(ONE, TWO)
    found = read_authority("s", text, "f")
    assert x509.load_pem_x509_certificates(found.bundle) == [TWO, ONE]
    assert found.bundle == pem_of(TWO, ONE)
    assert found.source == "s"


def test_digest_tells_certificates_apart_and_nothing_else():
    one = read_authority("s", pem_of(ONE), "f")
    assert one == read_authority("s", b"again " + pem_of(ONE, ONE), "f")
    assert one.digest != read_authority("s", pem_of(TWO), "f").digest


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"", "f has no certificates in PEM"),
        (b"no pem", "no certificates in PEM"),
        (pem_of(ONE) + pem_of(TWO)[:-30], "has a certificate that cannot be read"),
        (pem_of(ONE) + b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
         "no certificates in PEM"),
        (pem_of(*(make_authority()[0] for _ in range(LONGEST // 400))), f"more than {LONGEST}"),
    ],
)  # fmt: skip
def test_what_octavia_or_haproxy_would_refuse_is_refused(text, told):
    with pytest.raises(UnusableCertificate, match=told):
        read_authority("s", text, "f")


@pytest.mark.parametrize("made", HOSTILE.values(), ids=HOSTILE)
def test_certificates_that_haproxy_merely_cannot_use_are_taken(made):
    certificates, _ = made()
    assert read_authority("s", certificates, "f").bundle
