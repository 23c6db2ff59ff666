"""The public keys by which OAUTHBEARER checks tokens: fetched at the start, now and then, and when one is missing.

A fetch that fails leaves the keys as they were. Nothing waits for one: a token whose key is not known yet is refused,
and its client tries again.
"""

from __future__ import annotations

import logging

from appliance.base.background import Background
from appliance.base.clock import Clock
from appliance.base.errors import UserError
from appliance.security.oauth import Keys, TokenRules, UnknownKey, check_token, read_keys

_log = logging.getLogger(__name__)

FETCH_TIMEOUT_S = 10
MAX_BYTES = 1 << 20
SCHEMES = ("file:", "http:", "https:")


class KeyStore:
    """On the loop's thread; files and servers are read by helper threads.

    Raises:
        UserError: the address is of no kind that is read here.
    """

    def __init__(
        self, url: str, rules: TokenRules, background: Background, clock: Clock, refresh_ms: int, backoff_ms: int
    ) -> None:
        if not url.startswith(SCHEMES):
            raise UserError("sasl.oauthbearer.jwks.endpoint.url is an address with file:, http: or https:")
        self._url = url
        self._rules = rules
        self._background = background
        self._clock = clock
        self._refresh_ms = refresh_ms
        self._backoff_ms = backoff_ms
        self._keys: Keys = {}
        self._fetching = False
        self._last_ms = clock.monotonic_ms()
        self._refresh()

    def check(self, token: str) -> tuple[str, int]:
        """Raises: BadToken."""
        try:
            return check_token(token, self._keys, self._rules, self._clock.now_ms())
        except UnknownKey:
            if self._clock.monotonic_ms() - self._last_ms >= self._backoff_ms:
                self._fetch()
            raise

    def _refresh(self) -> None:
        self._background.schedule(self._refresh_ms, self._refresh)
        self._fetch()

    def _fetch(self) -> None:
        if self._fetching:
            return
        self._fetching, self._last_ms = True, self._clock.monotonic_ms()
        self._background.run(lambda: fetch_keys(self._url), self._fetched)

    def _fetched(self, result: Keys | Exception) -> None:
        self._fetching = False
        if not isinstance(result, Exception):
            self._keys = result
            return
        _log.error("keys of tokens could not be read from %s: %s", self._url, result)
        if not self._keys:
            self._background.schedule(max(self._backoff_ms, 1_000), self._fetch)


def fetch_keys(url: str) -> Keys:
    """Blocks. Raises: OSError, ValueError."""
    # Here and not above: a broker without tokens need not wait for this import.
    import urllib.request

    with urllib.request.urlopen(url, timeout=FETCH_TIMEOUT_S) as answer:
        data = answer.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ValueError(f"more than {MAX_BYTES} bytes")
    return read_keys(data)
