"""The places of a pipeline's Delta tables, under a path or in a catalog's schema."""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256

from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConfigurationError

CATALOG_NAME = re.compile(r"\w+(\.\w+)?")
URL_LOGIN = re.compile(r"://[^/@\s,]*:(?!\d+(/|$))[^@\s,]*@")
"""Matches a user and a password in a URL, which may be one of several. A port is no password."""

AMBIGUOUS_UNDERSCORE = re.compile(r"^_|__|_X[0-9A-F]+(_|$)|_$")
"""Matches where a plain underscore could be read as the separator of names, or as the first one of an escape."""

MAX_PART = 255
"""Characters that most file systems allow in a folder's name. Encoding can triple a name of 128 bytes."""

DIGEST_CHARACTERS = 16
ESCAPED = re.compile(rb"^[._]|[^A-Za-z0-9._]")
"""Bytes of a name in UTF-8 that are escaped in a folder's name.

The other bytes need no escape in a URL, in Hadoop's paths or in an object store's keys. Readers differ in whether they
decode those. A first dot or underscore would hide the folder from most readers.
"""

ESCAPE_CUT = re.compile("-[0-9A-F]?$")


@dataclass(frozen=True)
class DeltaName:
    """One Delta table: a path, or a catalog name that is already quoted for SQL."""

    name: str
    is_path: bool


@dataclass(frozen=True)
class Layout:
    """The names of all Delta tables of one target.

    A `target` with a slash or colon is a path: `{target}/tables/{schema}/{table}`, `/changes/...`, `/_db2cdc/...`. In a
    path, letters and digits of ASCII, dots and underscores stay. Each other byte of UTF-8 becomes `-` and two hex
    digits: `A B` is `A-20B`, `Ä` is `-C3-84`.

    Any other target is a catalog's schema (`schema` or `catalog.schema`). It holds `schema__table`,
    `schema__table__changes` and `_db2cdc_...`. Other characters of names become escapes such as `_x20_`.

    So two source tables never share a place, unless the file system ignores case.

    :raises ConfigurationError: when the target is neither a path nor a catalog's schema, or holds a login.
    """

    target: str

    def __post_init__(self) -> None:
        if URL_LOGIN.search(self.target):
            raise ConfigurationError(
                "the target holds a login, and logs and errors show the target",
                "Remove the login. The store's page in the documentation (docs/how-to/object-store.md) has other ways.",
            )
        if not self.target or not (self.is_path or CATALOG_NAME.fullmatch(self.target)):
            raise ConfigurationError(
                f"target {self.target!r} is neither a path nor a catalog's schema",
                "Give a path like /lake/sales or s3a://lake/sales, or a schema name like main.sales.",
            )

    @property
    def is_path(self) -> bool:
        """Whether the target is a path."""
        return "/" in self.target or ":" in self.target

    def state(self, table: TableId) -> DeltaName:
        """Return the name of the current state of a source table."""
        return self._for_table("tables", table, "")

    def changes(self, table: TableId) -> DeltaName:
        """Return the name of the change log of a source table."""
        return self._for_table("changes", table, "__changes")

    def internal(self, name: str) -> DeltaName:
        """Return the name of one of the pipeline's own tables, such as batches, commits or manifest."""
        return self._path(f"_db2cdc/{name}") if self.is_path else self._name(f"_db2cdc_{name}")

    def _for_table(self, folder: str, table: TableId, suffix: str) -> DeltaName:
        if self.is_path:
            return self._path(f"{folder}/{_path_part(table.schema)}/{_path_part(table.name)}")
        return self._name(f"{_name_part(table.schema)}__{_name_part(table.name)}{suffix}")

    def _path(self, rest: str) -> DeltaName:
        return DeltaName(f"{self.target.rstrip('/')}/{rest}", is_path=True)

    def _name(self, name: str) -> DeltaName:
        quoted = ".".join(f"`{part}`" for part in (*self.target.split("."), name))
        return DeltaName(quoted, is_path=False)


def _path_part(text: str) -> str:
    """Escape a name for a folder.

    A name that is too long ends with `--` and its digest. No escape yields `--`.
    """
    encoded = ESCAPED.sub(lambda byte: b"-%02X" % ord(byte[0]), text.encode()).decode()
    if len(encoded) <= MAX_PART:
        return encoded
    digest = sha256(text.encode()).hexdigest()[:DIGEST_CHARACTERS]
    whole = ESCAPE_CUT.sub("", encoded[: MAX_PART - 2 - DIGEST_CHARACTERS])
    return f"{whole}--{digest}"


def _name_part(text: str) -> str:
    """Encode the characters of a name that a catalog may refuse or fold.

    Underscores stay in upper-case names where they are not ambiguous.
    """
    if re.fullmatch("[A-Z0-9_]+", text) and not AMBIGUOUS_UNDERSCORE.search(text):
        return text.lower()
    return "".join(c.lower() if re.match("[A-Z0-9]", c) else f"_x{ord(c):x}_" for c in text)
