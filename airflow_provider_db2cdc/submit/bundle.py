"""The zip for --py-files with the package's pure and Spark modules.

With it, a cluster does not need this package installed.
"""

from __future__ import annotations

import os
import tempfile
import zipfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from airflow_provider_db2cdc.submit import PACKAGE

PARTS = ("__init__.py", "version.py", "errors.py", "failpoint.py", "cdc", "sql", "tick", "verify", "spark")
EPOCH = (1980, 1, 1, 0, 0, 0)


def cache_folder() -> Path:
    """Return the folder of this user's bundles and jars: $XDG_CACHE_HOME/db2cdc, usually ~/.cache/db2cdc."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "db2cdc"


def build_bundle(into: Path | None = None) -> Path:
    """Return the zip of the package as it is now. It is built if the folder does not have it.

    Its name has the hash of its content, and equal content gives equal bytes. Several processes may therefore build it
    at once. It runs on Python 3.11 and later, and needs only pyspark.
    """
    sources = {name: path.read_bytes() for name, path in _sources()}
    digest = sha256()
    for name, content in sources.items():
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    folder = into or cache_folder() / "bundles"
    bundle = folder / f"db2cdc-{digest.hexdigest()[:16]}.zip"
    if not bundle.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        _write(bundle, sources)
    return bundle


def _sources() -> Iterator[tuple[str, Path]]:
    for part in PARTS:
        root = PACKAGE / part
        for path in sorted(root.rglob("*.py")) if root.is_dir() else [root]:
            yield f"{PACKAGE.name}/{path.relative_to(PACKAGE).as_posix()}", path


def _write(bundle: Path, sources: dict[str, bytes]) -> None:
    handle, partial = tempfile.mkstemp(dir=bundle.parent, prefix=bundle.stem, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in sources.items():
                info = zipfile.ZipInfo(name, EPOCH)
                info.compress_type = zipfile.ZIP_DEFLATED
                info.external_attr = 0o644 << 16
                archive.writestr(info, content)
        Path(partial).chmod(0o644)
        os.replace(partial, bundle)
    finally:
        Path(partial).unlink(missing_ok=True)
