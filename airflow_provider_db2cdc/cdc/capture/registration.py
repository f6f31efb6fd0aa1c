"""Capture registrations: the guarantees of the capture agent for a source table."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Literal

from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.table import Column, TableId
from airflow_provider_db2cdc.errors import RegistrationError

UpdateAs = Literal["DI", "U"]


@dataclass(frozen=True)
class CaptureIdentity:
    """What must stay the same for an offset to keep its meaning.

    `created` is the CREATE_TIME of the change table, `source_created` that of the source table. A source table that is
    dropped and created again keeps its old registration. What happened to its rows is not captured. `cold_start` is
    IBMSNAP_RESTART.CAPTURE_FIRST_SEQ. A cold start of the agent changes it (IBM documents it for this test).
    """

    change_table: str
    created: str
    source_created: str
    cold_start: str

    @property
    def digest(self) -> str:
        """A short text that changes when one of the fields does."""
        return sha256(repr(self).encode()).hexdigest()[:12]


@dataclass(frozen=True)
class CaptureRegistration:
    """One row of IBMSNAP_REGISTER, with the actual columns of its change table.

    `update_as` says how an update is written. 'DI' is the old row's D and the new row's I (CHG_UPD_TO_DEL_INS = 'Y').
    'U' is one row with the after image.

    `pruned_upto` is CD_OLD_SYNCHPOINT: changes at or below it may be pruned. It never limits how far changes are read.
    `new_synchpoint` is CD_NEW_SYNCHPOINT. `data_capture` is the source table's DATACAPTURE: Y, N, or L where Db2's log
    also has the values of long columns.
    """

    table: TableId
    cd_owner: str
    cd_table: str
    state: str
    state_info: str
    update_as: UpdateAs
    before_prefix: str | None
    pruned_upto: Lsn | None
    new_synchpoint: Lsn | None
    cd_columns: tuple[Column, ...]
    identity: CaptureIdentity
    data_capture: str = ""

    @property
    def change_table(self) -> TableId:
        """The table that the agent writes the changes into."""
        return TableId(self.cd_owner, self.cd_table)

    @property
    def cd_names(self) -> tuple[str, ...]:
        """The names of the change table's columns."""
        return tuple(column.name for column in self.cd_columns)

    @property
    def is_active(self) -> bool:
        """Whether the agent captures the table's changes, once it has read the registration."""
        return self.state == "A"

    @property
    def has_captured(self) -> bool:
        """Whether the positions show that the agent has read the registration. ADDTABLE leaves both empty."""
        return self.new_synchpoint is not None or self.pruned_upto is not None


@dataclass(frozen=True)
class CapturePosition:
    """The position up to which capture has written everything.

    `lsn` is the greatest synchpoint, read committed. `synchtime` is the source's local time up to which all is
    captured. `source_time` is the source's clock when it was read. Both are ISO texts without a zone. `age_s` is their
    distance in seconds. `timezone_s` is by how many seconds local time was ahead of UTC then.
    """

    lsn: Lsn
    synchtime: str
    source_time: str
    age_s: float
    timezone_s: int = 0

    @property
    def source_utc(self) -> datetime:
        """The source's clock in UTC, without a zone."""
        return datetime.fromisoformat(self.source_time) - timedelta(seconds=self.timezone_s)


def reinit_call(asn_schema: str) -> str:
    """Return the statement that has the agent read its registrations again, as Debezium's scripts install it."""
    return f"VALUES {asn_schema}.ASNCDCSERVICES('reinit', '{asn_schema.lower()}')"


def check_state(registration: CaptureRegistration, asn_schema: str) -> None:
    """Refuse a registration that is not active.

    :raises RegistrationError: when STATE is not 'A'. The remedy fits the state.
    """
    if registration.is_active:
        return
    info = f" (STATE_INFO {registration.state_info})" if registration.state_info else ""
    is_stopped = registration.state == "S"
    first = (
        "The agent stopped it after an error: see its log and repair that. Then activate" if is_stopped else "Activate"
    )
    raise RegistrationError(
        f"{registration.table} is registered in state {registration.state!r}{info}, so its changes are not captured",
        f"{first} it: `{_activation(registration.table, asn_schema)}`, then `{reinit_call(asn_schema)}`.",
    )


def _activation(table: TableId, asn_schema: str) -> str:
    """Return the statement that activates only this table's registration. An operator can run it unchanged."""
    owner, name = (part.replace("'", "''") for part in (table.schema, table.name))
    return (
        f"UPDATE {asn_schema}.IBMSNAP_REGISTER SET STATE = 'A' "
        f"WHERE SOURCE_OWNER = '{owner}' AND SOURCE_TABLE = '{name}'"
    )
