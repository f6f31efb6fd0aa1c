"""Access to the offsets of DAGs from the command line, through Airflow's own database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from airflow.models.variable import Variable
from airflow.utils.session import create_session
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from airflow_provider_db2cdc.errors import ConfigurationError


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
