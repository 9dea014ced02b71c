"""Certificates of TLS, as Octavia takes them: PKCS #12 without a passphrase. Pure.

https://docs.openstack.org/octavia/latest/user/guides/basic-cookbook.html
"""

import hashlib
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509.oid import PublicKeyAlgorithmOID

from kuryr_k8s.model.routes import Host

PublicKey = rsa.RSAPublicKey | ec.EllipticCurvePublicKey
PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey
SMALLEST_RSA = 2048  # bits: haproxy, at the security level of its distributions, takes no less
LARGEST_RSA = 4096  # more makes handshakes slow, and all hosts share the processors
CURVES = ("secp256r1", "secp384r1", "secp521r1")  # of TLS 1.3 (RFC 8446, 4.2.7)
WEAK = ("md5", "sha1")  # haproxy refuses its whole configuration for a signature by one of these
LONGEST = 15_000  # bytes: Barbican takes 20,000 characters, unless it is configured otherwise
LONGEST_KEY = 4096  # bytes of PEM: the largest key has 3,272
# RSA and elliptic curves; of RSA for PSS alone Octavia does not find the certificate
KINDS = (PublicKeyAlgorithmOID.RSAES_PKCS1_v1_5, PublicKeyAlgorithmOID.EC_PUBLIC_KEY)
KEYS = "neither of RSA nor of the curves P-256, P-384, P-521"
_CN = x509.NameOID.COMMON_NAME
_BEGIN = re.compile(rb"-----BEGIN [A-Z0-9 ]*CERTIFICATE-----")
_NAME = re.compile(r"(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*")


class UnusableCertificate(ValueError):
    """A certificate cannot be shown to clients; the text says why, in words for users."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """A certificate with its key.

    :param source: the uid of the Secret that has it; a later certificate of it is its successor.
    :param digest: tells the certificate, its chain and its key from all others.
    :param names: the DNS names that it is for, in lower case; some may be wildcards.
    :param shown_for: the names for which haproxy shows it: those, and its common names.
    :param bundle: all of it in PKCS #12.
    """

    source: str
    digest: str
    names: frozenset[str]
    shown_for: frozenset[str]
    bundle: bytes = field(repr=False, compare=False)

    def is_for(self, host: Host) -> bool:
        """Return whether clients that ask for a host accept the certificate (RFC 6125)."""
        return any(Host(name).covers(host) for name in self.names)


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields in which users write a certificate and its key, by which errors name them."""

    certificate: str = "tls.crt"
    key: str = "tls.key"


OF_SECRETS = Fields()


def read_certificate(
    source: str, certificates: bytes, key: bytes, fields: Fields = OF_SECRETS
) -> Certificate:
    """Return the certificate that is first in a text of PEM, with its chain and its key.

    :param source: see :class:`Certificate`.
    :param certificates: one, and those that lead from it to a root.
    :raises UnusableCertificate: it cannot be used.
    """
    try:
        return _read(source, certificates, key, fields)
    except UnusableCertificate:
        raise
    # the library has no common base for what it raises at what users may write there
    except Exception as error:
        raise UnusableCertificate("it has something that cannot be read") from error


def _read(source: str, certificates: bytes, key: bytes, fields: Fields) -> Certificate:
    first, *others = read_certificates(certificates, fields.certificate)
    if first.public_key_algorithm_oid not in KINDS:
        raise UnusableCertificate(f"its key is {KEYS}")
    _check_strength(first)
    private = _private(key, fields.key)
    if _der(_public(first)) != _der(private.public_key()):
        raise UnusableCertificate("its key is not that of the certificate")
    # clients have the roots
    chain = [each for each in others if each.subject != each.issuer]
    for each in chain:
        _check_strength(each)
    names = frozenset(name.lower() for name in _alternatives(first))
    common = {str(each.value).lower() for each in first.subject.get_attributes_for_oid(_CN)}
    _check_names(names, common)
    bundle = pkcs12.serialize_key_and_certificates(
        None, private, first, chain or None, NoEncryption()
    )
    if len(bundle) > LONGEST:
        raise UnusableCertificate(f"it has more than {LONGEST} bytes, as PKCS #12")
    secret = private.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    parts = [secret, *(each.public_bytes(Encoding.DER) for each in (first, *chain))]
    digests = b"".join(hashlib.sha256(part).digest() for part in parts)
    return Certificate(
        source=source,
        digest=hashlib.sha256(digests).hexdigest(),
        names=names,
        shown_for=names | {name for name in common if _NAME.fullmatch(name)},
        bundle=bundle,
    )


def read_certificates(text: bytes, field: str) -> Sequence[x509.Certificate]:
    """Return the certificates in a text of PEM, of which there is one at least.

    :param field: where users write it.
    :raises UnusableCertificate: there is none, or one of them is damaged.
    """
    try:
        found = x509.load_pem_x509_certificates(text)
    # the library has no common base for what it raises at what users may write there
    except Exception as error:
        raise UnusableCertificate(f"{field} has no certificates in PEM") from error
    # the library passes over one without an end
    if len(found) < len(_BEGIN.findall(text)):
        raise UnusableCertificate(f"{field} has a certificate that cannot be read")
    return found


def _private(text: bytes, field: str) -> PrivateKey:
    if len(text) > LONGEST_KEY:
        raise UnusableCertificate(f"{field} has more than {LONGEST_KEY} bytes")
    try:
        # whether its primes are primes takes a second, in which all else would wait
        private = load_pem_private_key(text, password=None, unsafe_skip_rsa_key_validation=True)
    except (ValueError, TypeError) as error:
        raise UnusableCertificate(f"{field} has no private key in PEM") from error
    if not isinstance(private, PrivateKey):
        raise UnusableCertificate(f"its key is {KEYS}")
    return private


def _public(certificate: x509.Certificate) -> PublicKey:
    public = certificate.public_key()
    if not isinstance(public, PublicKey):
        raise UnusableCertificate(f"a key of its chain is {KEYS}")
    return public


def _der(key: PublicKey) -> bytes:
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _check_strength(certificate: x509.Certificate) -> None:
    """Make sure that haproxy takes a certificate: for any other it would refuse everything.

    :raises UnusableCertificate: it does not.
    """
    key = _public(certificate)
    if isinstance(key, rsa.RSAPublicKey):
        if not SMALLEST_RSA <= key.key_size <= LARGEST_RSA:
            raise UnusableCertificate(
                f"an RSA key of its chain has less than {SMALLEST_RSA} bits, or more than "
                f"{LARGEST_RSA}"
            )
    elif key.curve.name not in CURVES:
        raise UnusableCertificate(f"a key of its chain is {KEYS}")
    algorithm = certificate.signature_hash_algorithm
    if algorithm is not None and algorithm.name in WEAK:
        raise UnusableCertificate(f"a certificate of its chain is signed with {algorithm.name}")


def _alternatives(certificate: x509.Certificate) -> Sequence[str]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return ()
    return found.value.get_values_for_type(x509.DNSName)


def _check_names(names: Collection[str], common: Collection[str]) -> None:
    """Make sure that haproxy sees the same names as we do.

    :param common: the common names; other words than names are usual there.
    :raises UnusableCertificate: it would not, or there are none.
    """
    if not names:
        raise UnusableCertificate("its certificate has no DNS name (subjectAltName)")
    # a name ends at a NUL there; it may begin with an operator of its own
    odd = [name for name in names if not _NAME.fullmatch(name)]
    odd += [name for name in common if "\0" in name or name[:1] in ("!", "*")]
    if odd := [name for name in odd if not _NAME.fullmatch(name)]:
        raise UnusableCertificate(f"its certificate has {odd[0]!r} among its names")
