"""An authority of a test's own, and certificates that it signs: PEM files as brokers and clients take them."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_ORDER = {
    "C": NameOID.COUNTRY_NAME,
    "O": NameOID.ORGANIZATION_NAME,
    "OU": NameOID.ORGANIZATIONAL_UNIT_NAME,
    "CN": NameOID.COMMON_NAME,
    "E": NameOID.EMAIL_ADDRESS,
}


class Authority:
    """Signs certificates for 127.0.0.1 and localhost; `ca` is the file that others trust."""

    def __init__(self, folder: Path, name: str = "Test Authority") -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = self._builder(self._name, self._key.public_key()).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self._certificate = builder.sign(self._key, hashes.SHA256())
        self.ca = folder / "ca.pem"
        self.ca.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, file: str, *, password: str = "", **names: str) -> Path:
        """A file with a key and its chain, as Kafka's PEM keystores are: `issue("alice", CN="alice", O="example")`."""
        key = ec.generate_private_key(ec.SECP256R1())
        parts = [x509.NameAttribute(_ORDER[part], value) for part, value in names.items()]
        addresses = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        usage = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        certificate = (
            self._builder(x509.Name(parts), key.public_key())
            .add_extension(x509.SubjectAlternativeName(addresses), critical=False)
            .add_extension(x509.ExtendedKeyUsage(usage), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        locked = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
        pem = serialization.Encoding.PEM
        path = self.folder / f"{file}.pem"
        whole = (
            key.private_bytes(pem, serialization.PrivateFormat.PKCS8, locked)
            + certificate.public_bytes(pem)
            + self._certificate.public_bytes(pem)
        )
        # Put in place as a whole, as whoever renews certificates should.
        part = path.with_suffix(".part")
        part.write_bytes(whole)
        part.replace(path)
        return path

    def _builder(self, name: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=30))
        )
