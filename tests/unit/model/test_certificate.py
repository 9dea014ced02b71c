"""Certificates are read as Kubernetes stores them, and bundled as Octavia takes them."""

import subprocess

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)

from kuryr_k8s.model.certificate import UnusableCertificate, read_certificate
from kuryr_k8s.model.routes import Host
from kuryr_k8s.model.tls_secret import LONGEST, TLSSecret
from tests.kit.tls import (
    ec_key,
    make_certificate,
    make_pair,
    make_secret,
    pem_of,
    pem_of_key,
    rsa_key,
    unknown_curve,
    unknown_feature,
)


def view_of(item):
    item["metadata"] |= {"uid": "u", "resourceVersion": "1"}
    return TLSSecret.read(item)


def test_bundle_has_the_certificate_its_key_and_its_chain():
    ca_key, key = ec_key(), rsa_key(2048)
    ca = make_certificate(key=ca_key, is_ca=True)
    mine = make_certificate("Shop.demo", "*.shop.demo", key=key, issuer=(ca, ca_key))
    found = read_certificate("s", pem_of(mine, ca), pem_of_key(key))
    assert found.names == {"shop.demo", "*.shop.demo"}
    bundle = pkcs12.load_pkcs12(found.bundle, None)
    assert bundle.cert.certificate == mine
    assert bundle.additional_certs == []  # clients have the roots
    assert bundle.key.private_numbers() == key.private_numbers()


def test_bundle_has_the_certificates_that_lead_to_a_root():
    root_key, middle_key, key = ec_key(), ec_key(), ec_key()
    root = make_certificate(key=root_key, is_ca=True, common="the root")
    middle = make_certificate(
        key=middle_key, is_ca=True, common="between", issuer=(root, root_key)
    )
    mine = make_certificate("a", key=key, issuer=(middle, middle_key))
    found = read_certificate("s", pem_of(mine, middle, root), pem_of_key(key))
    others = pkcs12.load_pkcs12(found.bundle, None).additional_certs
    assert [each.certificate for each in others] == [middle]


def test_digest_tells_certificate_chain_and_key_apart_and_nothing_else():
    key, ca_key = ec_key(), ec_key()
    first, second = (make_certificate("a", key=key) for _ in range(2))
    ca = make_certificate(key=ca_key, is_ca=True, issuer=(first, key), common="between")
    texts = [pem_of(first), pem_of(second), pem_of(first, ca)]
    digests = {read_certificate("s", text, pem_of_key(key)).digest for text in texts}
    assert len(digests) == 3
    again = read_certificate("s", b"# a comment\n" + texts[0], pem_of_key(key))
    assert again.digest in digests


def test_chain_with_a_damaged_certificate_is_not_cut_in_silence():
    key = ec_key()
    text = pem_of(make_certificate("a", key=key))
    with pytest.raises(UnusableCertificate, match="has a certificate that cannot be read"):
        read_certificate("s", text + text[:-30], pem_of_key(key))


def test_older_forms_of_keys_are_read():
    for key in (rsa_key(2048), ec_key(ec.SECP384R1)):
        text = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
        assert read_certificate("s", pem_of(make_certificate("a", key=key)), text).names == {"a"}


KEY = ec_key()


def signed_with(digest):
    """A certificate and its key, by a digest that the library does not sign with."""
    asked = f"req -x509 -{digest} -newkey rsa:2048 -nodes -subj /CN=a -keyout -"
    command = ["openssl", *asked.split(), "-addext", "subjectAltName=DNS:a"]
    text = subprocess.run(command, capture_output=True, check=True).stdout
    return text, text


def under(key):
    """A certificate, and the one with this key that has signed it, which is no root."""
    root_key = ec_key()
    root = make_certificate(key=root_key, is_ca=True, common="the root")
    middle = make_certificate(key=key, is_ca=True, common="between", issuer=(root, root_key))
    return make_certificate("a", key=KEY, issuer=(middle, key)), middle


def unusable():
    good, key = make_pair("a")
    other = make_pair("a")[1]
    small, edwards = rsa_key(1024), ed25519.Ed25519PrivateKey.generate()
    foreign = ec_key(ec.SECP256K1)
    nameless = make_certificate(key=rsa_key(2048))
    return {
        "tls.crt has no": (b"", key),
        "tls.crt has no certificates": (b"no PEM", key),
        "tls.key has no": (good, b""),
        "tls.key has no private key": (good, good),
        "its key is not that": (good, other),
        "less than 2048 bits": (pem_of(make_certificate("a", key=small)), pem_of_key(small)),
        "less than 2048 bits, or": (pem_of(*under(small)), pem_of_key(KEY)),
        "signed with sha1": signed_with("sha1"),
        "a.x00": (pem_of(make_certificate("a\0.b", key=KEY, common="b")), pem_of_key(KEY)),
        "'!a'": (pem_of(make_certificate("b", key=KEY, common="!a")), pem_of_key(KEY)),
        "'.com'": (pem_of(make_certificate("*com", key=KEY, common="b")), pem_of_key(KEY)),
        "''": (pem_of(make_certificate("", key=KEY)), pem_of_key(KEY)),
        "cannot be read": unknown_feature(),
        "tls.key|cannot": unknown_curve(),
        "neither of RSA": (good, pem_of_key(edwards)),
        "nor of the curves": (pem_of(make_certificate("a", key=foreign)), pem_of_key(foreign)),
        "no DNS name": (pem_of(nameless), pem_of_key(rsa_key(2048))),
    }


@pytest.mark.parametrize(("told", "texts"), unusable().items())
def test_what_cannot_be_shown_to_clients_is_refused_in_words(told, texts):
    with pytest.raises(UnusableCertificate, match=told):
        read_certificate("s", *texts)


def test_certificate_that_barbican_does_not_take_is_refused():
    key = ec_key()
    names = [f"host-{number}.example.com" for number in range(800)]
    with pytest.raises(UnusableCertificate, match="more than 15000 bytes"):
        read_certificate("s", pem_of(make_certificate(*names, key=key)), pem_of_key(key))


@pytest.mark.parametrize(
    ("host", "is_for"),
    [
        ("shop.demo", True),
        ("a.shop.demo", True),
        ("*.shop.demo", True),
        ("a.b.shop.demo", False),
        ("*.a.shop.demo", False),
        ("other.demo", False),
        ("*.demo", False),
    ],
)
def test_certificate_is_for_its_names_and_for_one_label_of_wildcards(host, is_for):
    found = read_certificate("s", *make_pair("shop.demo", "*.shop.demo"))
    assert found.is_for(Host(host)) is is_for


def test_haproxy_shows_a_certificate_for_its_common_name_too():
    certificate = make_certificate("b.com", key=KEY, common="A.com")
    found = read_certificate("s", pem_of(certificate), pem_of_key(KEY))
    assert found.names == {"b.com"}
    assert found.shown_for == {"a.com", "b.com"}
    assert not found.is_for(Host("a.com"))
    words = make_certificate("b.com", key=KEY, common="Shop of Anna")
    assert read_certificate("s", pem_of(words), pem_of_key(KEY)).shown_for == {"b.com"}


def test_secret_that_is_no_base64_or_too_long_has_no_certificate():
    secret = make_secret("s", "ns", b"c", b"k")
    assert (view_of(secret).certificates, view_of(secret).key) == (b"c", b"k")
    secret["data"] = {"tls.crt": "%%%", "tls.key": "A" * (LONGEST + 4)}
    assert (view_of(secret).certificates, view_of(secret).key) == (b"", b"")
    del secret["data"]
    assert view_of(secret).certificates == b""


def test_key_stands_in_no_log():
    secret = make_secret("s", "ns", *make_pair("a"))
    found = view_of(secret)
    assert b"PRIVATE" in found.key
    assert "PRIVATE" not in repr(found)
    assert "bundle" not in repr(read_certificate("s", found.certificates, found.key))


def test_key_that_is_too_long_is_not_read():
    certificate, _ = make_pair("a")
    with pytest.raises(UnusableCertificate, match="more than 4096 bytes"):
        read_certificate("s", certificate, b"x" * 5000)


def test_largest_key_is_read():
    key = rsa_key(4096)
    certificate = pem_of(make_certificate("a", key=key))
    assert read_certificate("s", certificate, pem_of_key(key)).names == {"a"}
