"""Certificates for tests, and Secrets with them."""

import base64
import datetime
import functools

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)

TLS_FEATURE = x509.ObjectIdentifier("1.3.6.1.5.5.7.1.24")
P256 = bytes.fromhex("2a8648ce3d030107")
DAY = datetime.timedelta(days=1)


@functools.cache
def rsa_key(bits):
    return rsa.generate_private_key(65537, bits)


def ec_key(curve=ec.SECP256R1):
    return ec.generate_private_key(curve())


def pem_of_key(key):
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def pem_of(*certificates):
    return b"".join(each.public_bytes(Encoding.PEM) for each in certificates)


def make_certificate(*names, key, issuer=None, is_ca=False, common=None, more=()):
    """A certificate for DNS names; it signs itself if there is no issuer (certificate, key)."""
    common = common or (*names, "a CA")[0] or "none"
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common)])
    signer, signing_key = (issuer[0].subject, issuer[1]) if issuer else (subject, key)
    begin = datetime.datetime.now(datetime.UTC) - DAY
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(signer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + 30 * DAY)
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
    )
    if names:
        alternatives = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
        builder = builder.add_extension(alternatives, critical=False)
    for extension in more:
        builder = builder.add_extension(extension, critical=False)
    return builder.sign(signing_key, hashes.SHA256())


def make_pair(*names):
    """A certificate and its key, in PEM."""
    key = ec_key()
    return pem_of(make_certificate(*names, key=key)), pem_of_key(key)


def unknown_feature():
    """A certificate whose extensions the library cannot read."""
    key = ec_key()
    feature = x509.UnrecognizedExtension(TLS_FEATURE, bytes.fromhex("3003020163"))
    return pem_of(make_certificate("a", key=key, more=(feature,))), pem_of_key(key)


def unknown_curve():
    """A key of a curve that the library does not know."""
    key = ec_key()
    text = pem_of_key(key).decode().splitlines()
    der = base64.b64decode("".join(text[1:-1])).replace(P256, bytes.fromhex("2a8648ce3d030163"))
    body = base64.b64encode(der).decode()
    pem = f"{text[0]}\n{body}\n{text[-1]}\n".encode()
    return pem_of(make_certificate("a", key=key)), pem


HOSTILE = {each.__name__: each for each in (unknown_curve, unknown_feature)}


def make_secret(name, namespace, certificates, key, kind="kubernetes.io/tls"):
    data = {"tls.crt": certificates, "tls.key": key}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace},
        "type": kind,
        "data": {field: base64.b64encode(text).decode() for field, text in data.items()},
    }


def make_authority(name="a CA"):
    """The certificate of a CA, and its key."""
    key = ec_key()
    return make_certificate(key=key, is_ca=True, common=name), key


def is_of_authorities(payload):
    """Whether these are certificates of CAs, and not one in PKCS #12."""
    return payload.startswith(b"-----BEGIN CERTIFICATE")


def names_in(payload):
    """The DNS names of the certificate in PKCS #12; of CAs the common names."""
    if is_of_authorities(payload):
        found = x509.load_pem_x509_certificates(payload)
        return {each.subject.rfc4514_string() for each in found}
    certificate = pkcs12.load_pkcs12(payload, None).cert.certificate
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    return set(found.value.get_values_for_type(x509.DNSName))


def serial_in(payload):
    return pkcs12.load_pkcs12(payload, None).cert.certificate.serial_number


def serial_of(pem):
    return x509.load_pem_x509_certificate(pem).serial_number
