"""Files of credentials that options name, or that every Pod has."""

from dataclasses import dataclass
from pathlib import Path

from kuryr_k8s.k8s.credentials import Certificates, Loaded, Unreadable, check_token, expiry_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """The credentials in these files.

    :param root: the server's URL.
    :param token: may be missing if there is a client certificate.
    """

    root: str
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    token: Path | None = None
    verify: bool = True

    def load(self) -> Loaded:
        token = self._read_token()
        named = (self.ca, self.certificate, self.key, self.token)
        return Loaded(
            server=self.root,
            authorization=f"Bearer {token}" if token else "",
            certificates=self._certificates(),
            files=tuple(file for file in named if file is not None),
            expires=expiry_of(token),
        )

    def _certificates(self) -> Certificates:
        if not self.root.startswith("https:"):
            return Certificates()
        ca, certificate, key = map(read_pem, (self.ca, self.certificate, self.key))
        return Certificates(ca=ca, certificate=certificate, key=key, verify=self.verify)

    def _read_token(self) -> str:
        if self.token is None or (self.certificate is not None and not self.token.exists()):
            return ""
        return read_token(self.token)


def read_token(file: Path) -> str:
    """Read a token.

    :raises Unreadable: the file cannot be read, or there is no token in it.
    """
    try:
        text = file.read_text()
    except (OSError, ValueError) as error:
        raise Unreadable(f"the token cannot be read: {error}") from error
    return check_token(text.strip(), file)


def read_pem(file: Path | None) -> str:
    """Read certificates or a key; empty where no file is named.

    :raises Unreadable: the file cannot be read, or is empty: somebody is writing it.
    """
    if file is None:
        return ""
    if not file.is_file():
        raise Unreadable(f"there is no {file}")
    try:
        text = file.read_text()
    except (OSError, ValueError) as error:
        raise Unreadable(" ".join(str(error).split())) from error
    if not text.strip():  # no CA would mean those of the system
        raise Unreadable(f"{file} is empty")
    return text
