"""Write a file at a URI only if nobody has written it meanwhile: conditional writes of object storage.

S3, and what speaks its protocol, has them (If-None-Match, If-Match). They are reached through obstore, an extra; pyarrow does
not offer them. A server that ignores the condition looks as if it had them, so who relies on them tries a write that must fail.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import parse_qsl

from parley.envs.core.errors import StorageError
from parley.envs.core.registry import Registry
from parley.envs.core.storage.uris import split_uri

Version = Mapping[str, str]
"""What tells the content of a file from all earlier ones."""
conditional_stores = Registry("storage with conditional writes", "parley.conditional_storage")
"""Openers of a `ConditionalFile` by URI scheme: functions from the file's URI; None if it cannot be opened."""


class ConditionalFile(Protocol):
    """A file at a URI that is written on condition."""

    def read(self) -> tuple[bytes, Version] | None:
        """Return the content and its version; None if there is no file.

        Raises:
            StorageError: the file cannot be read.
        """

    def put(self, content: bytes, version: Version | None) -> Version | None:
        """Write the file if it still has a version.

        Args:
            content: the new content.
            version: the version that it must have; None if there must be no file.

        Returns:
            The new version; None if the file has another version, and nothing was written.

        Raises:
            StorageError: the file cannot be written.
        """


def conditional_file(uri: str) -> ConditionalFile | None:
    """Return a file that can be written on condition; None where the storage, or this installation, has no such writes."""
    scheme = uri.partition("://")[0].lower()
    if scheme not in conditional_stores:
        return None
    file: ConditionalFile | None = conditional_stores.get(scheme)(uri)
    return file


_OPTIONS = {"region", "endpoint_override", "scheme"}
"""Options of pyarrow's S3 URIs that are known here."""


class ObstoreFile(ConditionalFile):
    """A file in a store of obstore.

    Args:
        store: the store.
        uri: URI of the file, for errors.
        path: path of the file in the store.
    """

    def __init__(self, store: Any, uri: str, path: str) -> None:
        self._store, self._uri, self._path = store, uri, path

    def read(self) -> tuple[bytes, Version] | None:
        import obstore

        try:
            result = obstore.get(self._store, self._path)
            return bytes(result.bytes()), _version(result.meta)
        except FileNotFoundError:
            return None
        except (obstore.exceptions.BaseError, OSError, NotImplementedError) as error:
            raise self._error("read", error) from error

    def put(self, content: bytes, version: Version | None) -> Version | None:
        import obstore

        try:
            return _version(obstore.put(self._store, self._path, content, mode="create" if version is None else dict(version)))
        except (obstore.exceptions.AlreadyExistsError, obstore.exceptions.PreconditionError):
            return None
        except (obstore.exceptions.BaseError, OSError, NotImplementedError) as error:
            raise self._error("written on condition", error) from error

    def _error(self, verb: str, error: Exception) -> StorageError:
        return StorageError(
            f"storage cannot be {verb}",
            where=self._uri,
            got=str(error).strip().partition("\n")[0][:300],
            fix="see that it can be reached from here, with AWS_ACCESS_KEY_ID or a role of the machine",
        )


@conditional_stores.register("s3", "Amazon S3, and servers that speak its protocol")
def open_s3(uri: str) -> ConditionalFile | None:
    """Return a file at an S3 URI; None if obstore is not installed or does not know an option of the URI."""
    try:
        from obstore.store import S3Store
    except ImportError:
        return None
    root, path = split_uri(uri)
    base, _, query = root.partition("?")
    options = dict(parse_qsl(query))
    if options.keys() - _OPTIONS:
        return None
    settings: dict[str, Any] = {"region": options["region"]} if "region" in options else {}
    if "endpoint_override" in options:
        settings["endpoint"] = f"{options.get('scheme', 'https')}://{options['endpoint_override']}"
        settings["client_options"] = {"allow_http": options.get("scheme") == "http"}
    return ObstoreFile(S3Store(base.removeprefix("s3://"), **settings), uri, path)


def _version(about: Mapping[str, Any]) -> Version:
    return {name: about[name] for name in ("e_tag", "version") if about[name] is not None}
