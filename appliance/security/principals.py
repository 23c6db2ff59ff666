"""Who somebody is: principals, and how the name in a client's certificate becomes one.

`ssl.principal.mapping.rules` is a list of `RULE:pattern/replacement/[L|U]` and DEFAULT; the first rule whose pattern
fits the whole name wins. Patterns and replacements are those of java.util.regex: `$1` is the first group.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from appliance.base.errors import UserError


class Principal(NamedTuple):
    """Somebody, as ACLs name them."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


USER = "User"
ANONYMOUS = Principal(USER, "ANONYMOUS")
"""Whoever has shown nothing."""


def parse_principal(text: str) -> Principal:
    """Read `User:name`.

    Raises:
        ValueError: it has not that form.
    """
    kind, colon, name = text.partition(":")
    if not colon or not kind or not name:
        raise ValueError(f"expected a principal in the form type:name, but got {text}")
    return Principal(kind, name)


_RULE = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,|$)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: re.Pattern[str] | None
    """None: DEFAULT."""
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        found = self.pattern.fullmatch(name)
        if found is None:
            return None
        mapped = re.sub(r"\\(.)|\$(\d)", lambda at: at[1] or found.group(int(at[2])) or "", self.replacement)
        return mapped.lower() if self.case == "L" else mapped.upper() if self.case == "U" else mapped


class PrincipalMapper:
    """The rules of `ssl.principal.mapping.rules`.

    Raises:
        UserError: they cannot be read.
    """

    def __init__(self, text: str) -> None:
        self._rules: list[_Rule] = []
        at = 0
        stripped = text.strip() or "DEFAULT"
        while at < len(stripped):
            found = _RULE.match(stripped, at)
            if found is None:
                raise UserError(f"ssl.principal.mapping.rules: cannot read {stripped[at:]!r}")
            self._rules.append(_rule(found))
            at = found.end()

    def name_of(self, distinguished_name: str) -> str | None:
        """The user behind a distinguished name; None when no rule fits."""
        for rule in self._rules:
            mapped = rule.apply(distinguished_name)
            if mapped is not None:
                return mapped
        return None


def _rule(found: re.Match[str]) -> _Rule:
    if found[1]:
        return _Rule(None)
    try:
        return _Rule(re.compile(found[2].replace(r"\/", "/")), found[3], found[4])
    except re.error as error:
        raise UserError(f"ssl.principal.mapping.rules: {found[2]!r} is no pattern: {error}") from None


# Names of attributes as RFC 2253 writes them; all others are written as their number and their bytes.
_KEYWORDS = {
    "commonName": "CN",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
_NUMBERS = {
    "emailAddress": "1.2.840.113549.1.9.1",
    "serialNumber": "2.5.4.5",
    "surname": "2.5.4.4",
    "title": "2.5.4.12",
    "givenName": "2.5.4.42",
    "initials": "2.5.4.43",
    "generationQualifier": "2.5.4.44",
    "dnQualifier": "2.5.4.46",
    "pseudonym": "2.5.4.65",
}
_IA5_STRING, _PRINTABLE_STRING, _UTF8_STRING = 22, 19, 12
_IS_PRINTABLE = re.compile(r"[A-Za-z0-9 '()+,\-./:=?]*")
_MUST_ESCAPE = re.compile(r'([,+"\\<>;=])')

Name = Sequence[Sequence[tuple[str, str]]]
"""A subject as Python's ssl module gives it: relative names, each of some (attribute, value)."""


def distinguished_name(subject: Name) -> str:
    """A certificate's subject in the form of RFC 2253, the last part first: `CN=client,OU=data,O=example`."""
    return ",".join("+".join(_attribute(*pair) for pair in part) for part in reversed(subject))


def _attribute(attribute: str, value: str) -> str:
    keyword = _KEYWORDS.get(attribute)
    if keyword is not None:
        return f"{keyword}={_escaped(value)}"
    raw = value.encode()
    kind = _IA5_STRING if attribute == "emailAddress" else _UTF8_STRING
    if kind == _UTF8_STRING and _IS_PRINTABLE.fullmatch(value):
        kind = _PRINTABLE_STRING
    length = bytes([len(raw)]) if len(raw) < 128 else b"\x82" + len(raw).to_bytes(2, "big")
    return f"{_NUMBERS.get(attribute, attribute)}=#{(bytes([kind]) + length + raw).hex()}"


def _escaped(value: str) -> str:
    escaped = _MUST_ESCAPE.sub(r"\\\1", value)
    if escaped[:1] in (" ", "#"):
        escaped = "\\" + escaped
    if len(escaped) > 1 and escaped.endswith(" "):
        escaped = escaped[:-1] + "\\ "
    return escaped
