"""Whether every machine of a Spark cluster reaches the target."""

from __future__ import annotations

import re

from airflow_provider_db2cdc.cdc.spark_master import is_one_machine
from airflow_provider_db2cdc.errors import ConfigurationError

SHARED_MOUNT = "target.shared.mount"
SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
LOCAL = "file"


def check_reach(location: str, default_fs: str, master: str, is_shared_mount: bool) -> None:
    """Check that executors on other machines write to the same place as the driver.

    `location` is the path of the target. Without a scheme it lies in Hadoop's default file system (`default_fs`).

    :raises ConfigurationError: when it is a path on each machine's own disk, and no setting says that it is a mount
        that all machines share. Each executor would write rows to its own disk, where no other machine finds them.
    """
    if is_one_machine(master) or is_shared_mount or scheme_of(location, default_fs) != LOCAL:
        return
    raise ConfigurationError(
        f"target {location} is a local path, and Spark runs on {master}: each executor would write to its own disk",
        "Give the target a store that all machines reach, such as s3a://, abfss://, gs:// or hdfs://. If the path is a "
        f"mount that the driver and all executors share, set {SHARED_MOUNT}=true.",
    )


def scheme_of(location: str, default_fs: str) -> str:
    """Return the scheme of a location in lower case: its own, or that of the default file system."""
    for text in (location, default_fs):
        if found := SCHEME.match(text):
            return found[1].lower()
    return LOCAL
