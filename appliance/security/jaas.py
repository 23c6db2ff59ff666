"""JAAS entries as `sasl.jaas.config` has them: `some.LoginModule required name="value" name="value";`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from appliance.base.errors import UserError

_WORD = re.compile(r'\s*(?:"((?:\\.|[^"\\])*)"|\'((?:\\.|[^\'\\])*)\'|([^\s=;"\']+)|([=;]))')
_FLAGS = ("required", "requisite", "sufficient", "optional")
USER_PREFIX = "user_"


@dataclass(frozen=True, slots=True)
class JaasEntry:
    """One login module and its options."""

    module: str
    options: dict[str, str]

    @property
    def users(self) -> dict[str, str]:
        """PLAIN's passwords: those of `user_<name>`."""
        return {
            name.removeprefix(USER_PREFIX): value
            for name, value in self.options.items()
            if name.startswith(USER_PREFIX)
        }


def parse_jaas(text: str) -> JaasEntry:
    """Read one entry.

    Raises:
        UserError: it is not one; the message holds nothing of its options, which are secrets.
    """
    words = _words(text)
    if len(words) < 3 or words[1].lower() not in _FLAGS or words[-1] != ";" or ";" in words[:-1]:
        raise UserError('sasl.jaas.config is not of the form: some.LoginModule required name="value";')
    options: dict[str, str] = {}
    rest = words[2:-1]
    for at in range(0, len(rest), 3):
        if len(rest) < at + 3 or rest[at + 1] != "=":
            raise UserError(f'sasl.jaas.config: an option of {words[0]} is not of the form name="value"')
        options[rest[at]] = rest[at + 2]
    return JaasEntry(words[0], options)


def _words(text: str) -> list[str]:
    words: list[str] = []
    at, stripped = 0, text.rstrip()
    while at < len(stripped):
        found = _WORD.match(stripped, at)
        if found is None:
            raise UserError("sasl.jaas.config has a quote that does not end")
        quoted = found[1] if found[1] is not None else found[2]
        words.append(re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else found[3] or found[4])
        at = found.end()
    return words
