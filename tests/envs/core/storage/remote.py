"""Object storage in this process, as storage far away behaves: no appending, no renaming, an object is there when all of it is.

Objects lie at remote://BUCKET/KEY, and at exact://BUCKET/KEY, where writes may have conditions. A test can refuse operations,
break a put in its middle, and read off what was asked.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyarrow import fs

from parley.envs.core.errors import StorageError
from parley.envs.core.storage.conditional import Version, conditional_stores
from parley.envs.core.storage.files import filesystems

SCHEME, EXACT = "remote", "exact"
DENIED = OSError("When putting an object: AWS Error ACCESS_DENIED during PutObject operation: no rights")
BUCKETS: dict[str, Bucket] = {}


class Bucket(fs.FileSystemHandler):
    """Objects by key, `BUCKET/...`.

    Attributes:
        objects: content and time of each.
        asked: (operation, key) in order; operations are "read", "put", "delete", "list".
        refuse: what an operation on a key raises; None where it may go on.
        room: bytes of one put after which the connection breaks.
        keeps_conditions: False where a condition of a put is ignored.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.objects: dict[str, tuple[bytes, int]] = {}
        self.asked: list[tuple[str, str]] = []
        self.refuse: Callable[[str, str], OSError | None] = lambda operation, key: None
        self.room: float = float("inf")
        self.keeps_conditions = True
        self._ticks = 1_700_000_000_000_000_000
        BUCKETS[name] = self

    def keys(self, operation: str) -> list[str]:
        return [key.removeprefix(f"{self.name}/") for asked, key in self.asked if asked == operation]

    def commit(self, key: str, content: bytes) -> None:
        self._ticks += 1_000_000_000
        self.objects[key] = content, self._ticks

    def _ask(self, operation: str, key: str) -> None:
        self.asked.append((operation, key))
        if error := self.refuse(operation, key):
            raise error

    def get_type_name(self) -> str:
        return SCHEME

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> list[Any]:
        return [self._info(path) for path in paths]

    def get_file_info_selector(self, selector: Any) -> list[Any]:
        self._ask("list", selector.base_dir)
        start = f"{selector.base_dir.rstrip('/')}/"
        inside = [key for key in self.objects if key.startswith(start)]
        if selector.recursive:
            return [self._info(key) for key in inside]
        children = {key[len(start) :].split("/")[0] for key in inside}
        return [self._info(start + child) for child in sorted(children)]

    def _info(self, path: str) -> Any:
        if path in self.objects:
            content, time_ns = self.objects[path]
            return fs.FileInfo(path, fs.FileType.File, size=len(content), mtime_ns=time_ns)
        is_folder = any(key.startswith(f"{path}/") for key in self.objects)
        return fs.FileInfo(path, fs.FileType.Directory if is_folder else fs.FileType.NotFound)

    def open_input_stream(self, path: str) -> Any:
        self._ask("read", path)
        if path not in self.objects:
            raise FileNotFoundError(path)
        return pa.BufferReader(self.objects[path][0])

    open_input_file = open_input_stream

    def open_output_stream(self, path: str, metadata: Any) -> Any:
        self._ask("put", path)
        return pa.PythonFile(_Upload(self, path), mode="w")

    def delete_file(self, path: str) -> None:
        self._ask("delete", path)
        if path not in self.objects:
            raise FileNotFoundError(path)
        del self.objects[path]

    def _never(self, *_: Any) -> None:
        raise NotImplementedError("object storage cannot do this")

    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = _never
    move = copy_file = open_append_stream = _never


class _Upload(io.RawIOBase):
    def __init__(self, bucket: Bucket, key: str) -> None:
        self._bucket, self._key, self._content, self._broken = bucket, key, bytearray(), False

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        self._content += bytes(content)
        if len(self._content) > self._bucket.room:
            self._broken = True
            raise OSError("the connection was reset")
        return len(content)

    def close(self) -> None:
        if not self.closed and not self._broken:
            self._bucket.commit(self._key, bytes(self._content))
        super().close()


@filesystems.register(SCHEME, "object storage of the tests")
def open_bucket(root: str) -> tuple[Any, str]:
    name = root.partition("://")[2].partition("?")[0]
    return fs.PyFileSystem(BUCKETS[name]), name


filesystems.register(EXACT, "the same with conditional writes")(open_bucket)


class ConditionalObject:
    """An object that is put on condition."""

    def __init__(self, bucket: Bucket, key: str) -> None:
        self._bucket, self._key = bucket, key

    def read(self) -> tuple[bytes, Version] | None:
        self._bucket._ask("read", self._key)
        if self._key not in self._bucket.objects:
            return None
        content, ticks = self._bucket.objects[self._key]
        return content, {"e_tag": str(ticks)}

    def put(self, content: bytes, version: Version | None) -> Version | None:
        try:
            standing = self.read()
            if self._bucket.keeps_conditions and (None if standing is None else standing[1]) != version:
                return None
            self._bucket._ask("put", self._key)
        except OSError as error:
            raise StorageError("storage cannot be written", got=error) from error
        self._bucket.commit(self._key, content)
        return {"e_tag": str(self._bucket.objects[self._key][1])}


@conditional_stores.register(EXACT, "object storage of the tests")
def open_object(uri: str) -> ConditionalObject:
    key = uri.partition("://")[2]
    return ConditionalObject(BUCKETS[key.partition("/")[0]], key)
