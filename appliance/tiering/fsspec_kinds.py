"""What the libraries below fsspec are called, and what some of them need to keep the promises of a store.

gcsfs, of Google's store: its plain file system is taken. The one that it gives by default asks over gRPC what kind of
bucket it has, and in zonal ones what is being written can be read. It waits for an answer for ever, unless it is told
not to. Short bodies it sends as a part between two lines that are always the same: one that has such a line inside
would end there, so it goes the way of long ones.

adlfs, of Azure's: it repeats writes whose answer is lost, and would then meet its own.
"""

from __future__ import annotations

import logging
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from appliance.base.object_store import StoreRefused

PREFIX = "fsspec+"
"""Before a scheme that otherwise means a store of our own: `fsspec+s3://...`."""
OLDEST_YEAR = 2026
"""Of the releases of these libraries, which are named by their date, the oldest that was tried."""
GOOGLE_TIMEOUT_S = 60
"""For one request, which sends 50 MiB at most."""
GOOGLE_BOUNDARY = b"--==0=="
GOOGLE_PIECE_BYTES = 50 << 20
"""From here on gcsfs sends a body in pieces."""
TRY_AGAIN = (408, 409, 425, 429)
REFUSALS = ("PermissionError", "NotImplementedError", "ClientAuthenticationError", "DefaultCredentialsError")
"""Errors that have no status and are one all the same, and how gcsfs begins what it says then."""
REFUSING_WORDS = ("Forbidden", "Bad Request")


class Library(NamedTuple):
    name: str
    extra: str
    """What installs it: `pip install 'appliance[extra]'`."""


GOOGLE, AZURE, S3 = Library("gcsfs", "gcs"), Library("adlfs", "azure"), Library("s3fs", "connectors")
LIBRARIES = {"gs": GOOGLE, "gcs": GOOGLE, "abfs": AZURE, "abfss": AZURE, "az": AZURE, "s3": S3, "s3a": S3}
"""By the schemes of their URLs."""


def is_known(scheme: str) -> bool:
    """Whether there is a file system of this name. Raises: StoreRefused: what it needs is missing or too old."""
    plain = scheme.removeprefix(PREFIX)
    try:
        import fsspec
    except ImportError as error:
        extra = LIBRARIES[plain].extra if plain in LIBRARIES else "connectors"
        raise StoreRefused(f"{scheme}:// needs fsspec: install appliance[{extra}]") from error
    if plain in LIBRARIES:
        _require(scheme, LIBRARIES[plain])
    return plain in fsspec.available_protocols()


def open_files(url: str, options: dict[str, Any]) -> tuple[Any, str]:
    """The file system of a URL, and the folder in it; it asks the store each time what there is.

    Raises: ValueError, TypeError, ImportError, OSError: as the library likes.
    """
    inner = url.removeprefix(PREFIX)
    # What another process has written a moment ago must be seen.
    options = {"use_listings_cache": False, **options}
    if LIBRARIES.get(urlsplit(inner).scheme) is GOOGLE:
        from gcsfs.core import GCSFileSystem

        # What it logs, with a traceback, it raises as well.
        logging.getLogger("gcsfs").setLevel(logging.CRITICAL)
        files = GCSFileSystem(**{"requests_timeout": GOOGLE_TIMEOUT_S, **options})
        return files, GCSFileSystem._strip_protocol(inner)
    import fsspec

    found: tuple[Any, str] = fsspec.core.url_to_fs(inner, **options)
    return found


def _require(scheme: str, library: Library) -> None:
    try:
        installed = version(library.name)
    except PackageNotFoundError as error:
        raise StoreRefused(f"{scheme}:// needs {library.name}: install appliance[{library.extra}]") from error
    year = installed.partition(".")[0]
    if year.isdigit() and int(year) < OLDEST_YEAR:
        wanted = f"{library.name} of {OLDEST_YEAR} or later, there is {installed}"
        raise StoreRefused(f"{scheme}:// needs {wanted}: install appliance[{library.extra}]")


def create_options(files: Any, data: bytes) -> dict[str, Any]:
    """What this file system must be told when it creates a file with these bytes."""
    names = (files.protocol,) if isinstance(files.protocol, str) else files.protocol
    library = next((LIBRARIES[name] for name in names if name in LIBRARIES), None)
    if library is GOOGLE and len(data) < GOOGLE_PIECE_BYTES and GOOGLE_BOUNDARY in data:
        return {"chunksize": len(data)}
    return {"retry_total": 0} if library is AZURE else {}


def is_refusal(error: Exception) -> bool:
    """Whether the store said no, and would say it again."""
    if any(kind.__name__ in REFUSALS for kind in type(error).__mro__) or str(error).startswith(REFUSING_WORDS):
        return True
    told = (getattr(error, field, None) for field in ("status_code", "code", "status"))
    status = next((int(str(each)) for each in told if str(each).isdigit()), 0)
    return 400 <= status < 500 and status not in TRY_AGAIN
