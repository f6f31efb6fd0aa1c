"""Access to the offsets of DAGs from the command line, through Airflow's own database."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from airflow.models.variable import Variable
from airflow.utils.session import create_session
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from airflow_provider_db2cdc.cdc.offset.offset import Offset
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import ConfigurationError, OffsetError
from airflow_provider_db2cdc.offsets.variable import (
    VariableOffsetStore,
    variable_key,
    where_kept,
)


class MetadataVariables:
    """Airflow's Variables outside of tasks, as `airflow variables` reads them from the database.

    :raises ConfigurationError: when the database cannot be reached. A read of a Variable would then find none.
    """

    def __init__(self) -> None:
        with _reading() as session:
            session.scalar(select(Variable.key).limit(1))

    def get(self, key: str, default: str | None = None) -> str | None:
        """Return a Variable's text. A secrets backend comes before the database."""
        text: str | None = Variable.get(key, default_var=default)
        return text

    def set(self, key: str, value: str, description: str) -> None:
        """Store a text in the database."""
        Variable.set(key, value, description=description)

    def delete(self, key: str) -> None:
        """Remove a Variable from the database."""
        Variable.delete(key)

    def beginning(self, prefix: str) -> dict[str, str]:
        """Return the database's Variables whose keys begin with the prefix."""
        with _reading() as session:
            variables = session.scalars(select(Variable).where(Variable.key.startswith(prefix, autoescape=True)))
            return {variable.key: variable.val or "" for variable in variables}


class MetadataOffsetStore(VariableOffsetStore):
    """The offsets of one pipeline in Airflow's Variables, for an operator to read and repair."""

    def __init__(self, pipeline: str) -> None:
        self.metadata = MetadataVariables()
        super().__init__(pipeline, self.metadata)

    def all(self) -> Mapping[TableId, Offset]:
        """Return the offsets of all tables.

        :raises OffsetError: when the Variable of one of the pipeline's tables does not hold an offset.
        """
        texts = self.metadata.beginning(f"db2cdc.{self.pipeline}.")
        offsets: dict[TableId, Offset] = {}
        foreign: dict[str, OffsetError] = {}
        for key, text in texts.items():
            try:
                offset = Offset.from_json(text, where_kept(key))
            except OffsetError as error:
                foreign[key] = error
                continue
            # The keys of a pipeline whose name begins with this one's name have the same prefix.
            if variable_key(self.pipeline, offset.table) == key:
                offsets[offset.table] = offset
        table_keys = {variable_key(self.pipeline, table) for table in self.summary().tables}
        for key in sorted(table_keys & foreign.keys()):
            raise foreign[key]
        return offsets

    def remove(self, table: TableId) -> Offset | None:
        """Remove a table's offset and return it, or None if there was none or its text is damaged."""
        try:
            old = self.get(table)
        except OffsetError:
            old = None
        self.metadata.delete(variable_key(self.pipeline, table))
        return old


@contextmanager
def _reading() -> Iterator[Session]:
    try:
        with create_session() as session:
            yield session
    except SQLAlchemyError as error:
        raise ConfigurationError(
            f"Airflow's database cannot be read ({type(error).__name__})",
            "Run it where `airflow variables list` works: with the AIRFLOW_HOME and settings of the scheduler.",
        ) from error
