"""The syntax of RE2, which Kafka's brokers take for subscriptions, as far as names of topics can meet it.

Names of topics are ASCII, so sets of characters are bits of one number. What RE2 refuses is refused: backreferences,
looking ahead and behind, possessive quantifiers.

    x . [xyz] [^x-z] [[:alpha:]] \\d \\w \\s \\pL     one character
    xy   x|y   x* x+ x? x{n,m} (and lazy ones)       sequence, choice, repetition
    (x) (?:x) (?P<name>x) (?i) (?i:x)                groups and flags
    ^ $ \\A \\z \\b \\B   \\Q…\\E                        places, literal text
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

ALL: Final = (1 << 128) - 1
REPEAT_MAX = 1_000
"""As in RE2."""
DEPTH_MAX = 100
"""How deep groups may be nested; RE2 has 1,000."""


class BadRegex(ValueError):
    """Not a regular expression of RE2; the text says why."""


@dataclass(frozen=True, slots=True)
class Characters:
    """Any of these; none for one that no topic's name has."""

    bits: int


@dataclass(frozen=True, slots=True)
class Place:
    """A condition on where we are: ^ $ b B."""

    kind: str


@dataclass(frozen=True, slots=True)
class Sequence:
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    ways: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    part: Node
    low: int
    high: int | None


Node = Characters | Place | Sequence | Choice | Repeat


def bits_of(characters: Iterable[str]) -> int:
    """The set of these characters."""
    bits = 0
    for each in characters:
        if ord(each) < 128:
            bits |= 1 << ord(each)
    return bits


_LOWER = bits_of("abcdefghijklmnopqrstuvwxyz")
_UPPER = _LOWER >> 32
_DIGITS = bits_of("0123456789")
WORD: Final = _LOWER | _UPPER | _DIGITS | bits_of("_")
_SPACE = bits_of("\t\n\f\r ")
_PUNCTUATION = bits_of("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
_CLASSES = {
    "alnum": _LOWER | _UPPER | _DIGITS, "alpha": _LOWER | _UPPER, "ascii": ALL, "blank": bits_of("\t "),
    "cntrl": bits_of(map(chr, range(32))) | 1 << 127, "digit": _DIGITS,
    "graph": _LOWER | _UPPER | _DIGITS | _PUNCTUATION, "lower": _LOWER,
    "print": _LOWER | _UPPER | _DIGITS | _PUNCTUATION | bits_of(" "), "punct": _PUNCTUATION,
    "space": _SPACE | 1 << 11, "upper": _UPPER, "word": WORD, "xdigit": _DIGITS | bits_of("abcdefABCDEF"),
}  # fmt: skip
_PERL = {"d": _DIGITS, "w": WORD, "s": _SPACE}
_ESCAPES = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}
_SCRIPTS = {"Latin": _LOWER | _UPPER, "Any": ALL}
_CATEGORIES = ("L", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "Mn", "Mc", "Me", "N", "Nd", "Nl", "No", "P", "Pc", "Pd", "Ps",
               "Pe", "Pi", "Pf", "Po", "S", "Sm", "Sc", "Sk", "So", "Z", "Zs", "Zl", "Zp", "C", "Cc", "Cf")  # fmt: skip


def parse(text: str) -> Node:
    """Read a regular expression. Raises: BadRegex."""
    parser = _Parser(text)
    node = parser.choice(0)
    if parser.position < len(text):
        raise BadRegex(f"unexpected ) at {parser.position}")
    return node


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.flags: frozenset[str] = frozenset()
        self.names: set[str] = set()

    def choice(self, depth: int) -> Node:
        if depth > DEPTH_MAX:
            raise BadRegex("nested too deeply")
        flags = self.flags
        ways = [self._sequence(depth)]
        while self._take("|"):
            ways.append(self._sequence(depth))
        self.flags = flags
        return ways[0] if len(ways) == 1 else Choice(tuple(ways))

    def _sequence(self, depth: int) -> Node:
        parts: list[Node] = []
        while self.position < len(self.text) and self.text[self.position] not in "|)":
            if self._take("\\Q"):
                end = self.text.find("\\E", self.position)
                literal = self.text[self.position : end] if end >= 0 else self.text[self.position :]
                self.position += len(literal) + (2 if end >= 0 else 0)
                parts += [self._literal(each) for each in literal]
                if not literal:
                    continue
            else:
                atom = self._atom(depth)
                if atom is None:
                    continue
                parts.append(atom)
            parts[-1] = self._repeated(parts[-1])
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _repeated(self, node: Node) -> Node:
        is_repeated = False
        while True:
            limits = self._quantifier()
            if limits is None:
                return node
            if is_repeated:
                raise BadRegex(f"a repetition of a repetition at {self.position}")
            self._take("?")
            node, is_repeated = Repeat(node, *limits), True

    def _quantifier(self) -> tuple[int, int | None] | None:
        for sign, limits in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(sign):
                return limits
        start = self.position
        if not self._take("{"):
            return None
        low = self._number()
        high = low
        if low is not None and self._take(","):
            high = self._number()
        if low is None or not self._take("}"):
            # RE2 takes such a brace for itself.
            self.position = start
            return None
        if low > REPEAT_MAX or (high is not None and not low <= high <= REPEAT_MAX):
            raise BadRegex(f"a repetition that is too large, or none, at {start}")
        return low, high

    def _number(self) -> int | None:
        start = self.position
        while self.position < len(self.text) and self.text[self.position] in "0123456789":
            self.position += 1
        digits = self.text[start : self.position]
        return int(digits[:9]) if digits else None

    def _atom(self, depth: int) -> Node | None:
        sign = self.text[self.position]
        match sign:
            case "(":
                return self._group(depth)
            case "[":
                return Characters(self._set())
            case "\\":
                return self._escaped()
            case "*" | "+" | "?":
                raise BadRegex(f"nothing to repeat at {self.position}")
        self.position += 1
        match sign:
            case ".":
                return Characters(ALL if "s" in self.flags else ALL & ~bits_of("\n"))
            case "^" | "$":
                return Place(sign)
        return self._literal(sign)

    def _literal(self, sign: str) -> Node:
        return Characters(self._folded(bits_of(sign)))

    def _folded(self, bits: int) -> int:
        if "i" not in self.flags:
            return bits
        return bits | (bits & _UPPER) << 32 | (bits & _LOWER) >> 32

    def _group(self, depth: int) -> Node | None:
        start = self.position
        self.position += 1
        flags = self.flags
        if self._take("?"):
            if self._take("P<") or (not self._is_next("<=", "<!") and self._take("<")):
                self._name(start)
            elif self._read_flags(start):
                return None
        node = self.choice(depth + 1)
        if not self._take(")"):
            raise BadRegex(f"a group that does not end, at {start}")
        self.flags = flags
        return node

    def _name(self, start: int) -> None:
        end = self.text.find(">", self.position)
        name = self.text[self.position : end]
        if end < 0 or not name or not all(each.isascii() and (each.isalnum() or each == "_") for each in name):
            raise BadRegex(f"a group without a proper name, at {start}")
        if name in self.names:
            raise BadRegex(f"two groups have the name {name}")
        self.names.add(name)
        self.position = end + 1

    def _read_flags(self, start: int) -> bool:
        """Whether they hold for all that follows, and are no group."""
        on, off, is_on, seen = set(self.flags), False, True, 0
        while self.position < len(self.text):
            sign = self.text[self.position]
            self.position += 1
            if sign in "imsU":
                seen += 1
                (on.add if is_on else on.discard)(sign)
            elif sign == "-" and not off:
                off, is_on, seen = True, False, 0
            elif sign in ":)" and (seen or not off) and (sign == ":" or seen):
                self.flags = frozenset(on)
                return sign == ")"
            else:
                break
        raise BadRegex(f"a group of a kind that is not supported, at {start}")

    def _escaped(self) -> Node:
        start = self.position
        self.position += 1
        if self.position >= len(self.text):
            raise BadRegex("a backslash at the end")
        sign = self.text[self.position]
        if sign in "AzbB":
            self.position += 1
            return Place({"A": "^", "z": "$"}.get(sign, sign))
        if sign == "C":
            self.position += 1
            return Characters(ALL)
        bits = self._class(sign)
        if bits is not None:
            return Characters(bits)
        return self._literal(self._character(start))

    def _class(self, sign: str) -> int | None:
        if sign.lower() in _PERL:
            self.position += 1
            return _PERL[sign] if sign in _PERL else ALL & ~_PERL[sign.lower()]
        if sign not in "pP":
            return None
        self.position += 1
        if self._take("{"):
            end = self.text.find("}", self.position)
            name = self.text[self.position : end] if end >= 0 else ""
            self.position = end + 1
        else:
            name = self.text[self.position : self.position + 1]
            self.position += 1
        is_not = (sign == "P") != name.startswith("^")
        bits = _unicode(name.removeprefix("^"))
        return ALL & ~bits if is_not else bits

    def _character(self, start: int) -> str:
        """One character behind a backslash."""
        sign = self.text[self.position]
        self.position += 1
        if sign in _ESCAPES:
            return _ESCAPES[sign]
        if sign == "x":
            if self._take("{"):
                end = self.text.find("}", self.position)
                digits = self.text[self.position : end] if end >= 0 else ""
                self.position = end + 1
            else:
                digits = self.text[self.position : self.position + 2]
                self.position += 2
                if len(digits) != 2:
                    digits = ""
            return _from_digits(digits, 16, start)
        if sign == "0" or (sign in "1234567" and self.text[self.position : self.position + 1] in set("01234567")):
            end = self.position
            while end < min(self.position + 2, len(self.text)) and self.text[end] in "01234567":
                end += 1
            digits = sign + self.text[self.position : end]
            self.position = end
            return _from_digits(digits, 8, start)
        if ord(sign) < 128 and not sign.isalnum():
            return sign
        raise BadRegex(f"\\{sign} is not supported, at {start}")

    def _set(self) -> int:
        start = self.position
        self.position += 1
        is_not = self._take("^")
        bits, is_first = 0, True
        while is_first or not self._is_next("]"):
            if self.position >= len(self.text):
                raise BadRegex(f"a set that does not end, at {start}")
            is_first = False
            named = self._named_class() if self._is_next("[:") else None
            if named is None and self._is_next("\\") and self.position + 1 < len(self.text):
                self.position += 1
                named = self._class(self.text[self.position])
                self.position -= named is None
            if named is not None:
                bits |= named
                continue
            low = self._member(start)
            high = low
            if self._is_next("-") and not self._is_next("-]"):
                self.position += 1
                high = self._member(start)
                if high < low:
                    raise BadRegex(f"a range from {low} to {high}, at {start}")
            bits |= bits_of(map(chr, range(ord(low), min(ord(high), 127) + 1)))
        self.position += 1
        bits = self._folded(bits)
        return ALL & ~bits if is_not else bits

    def _member(self, start: int) -> str:
        if self.position >= len(self.text):
            raise BadRegex(f"a set that does not end, at {start}")
        sign = self.text[self.position]
        self.position += 1
        if sign != "\\":
            return sign
        if self.position >= len(self.text):
            raise BadRegex("a backslash at the end")
        return self._character(start)

    def _named_class(self) -> int | None:
        end = self.text.find(":]", self.position + 2)
        if end < 0:
            return None
        name = self.text[self.position + 2 : end]
        bits = _CLASSES.get(name.removeprefix("^"))
        if bits is None:
            raise BadRegex(f"there is no class [:{name}:]")
        self.position = end + 2
        return ALL & ~bits if name.startswith("^") else bits

    def _is_next(self, *texts: str) -> bool:
        return self.text.startswith(texts, self.position)

    def _take(self, text: str) -> bool:
        if not self.text.startswith(text, self.position):
            return False
        self.position += len(text)
        return True


def _from_digits(digits: str, base: int, start: int) -> str:
    try:
        return chr(int(digits, base))
    except (ValueError, OverflowError):
        raise BadRegex(f"no character, at {start}") from None


def _unicode(name: str) -> int:
    if name in _SCRIPTS:
        return _SCRIPTS[name]
    if name not in _CATEGORIES:
        raise BadRegex(f"\\p{{{name}}} is not supported")
    return bits_of(each for each in map(chr, range(128)) if unicodedata.category(each).startswith(name))
