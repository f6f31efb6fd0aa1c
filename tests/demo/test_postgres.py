"""The server that holds Airflow's metadata: where it is found, what reaches it, and when it ends."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psutil
import pytest
from support.program import ROOT, wait_for

from airflow_provider_db2cdc.demo.services import postgres
from airflow_provider_db2cdc.demo.services.airflow_home import AirflowHome
from airflow_provider_db2cdc.demo.stage import MARKER, empty
from airflow_provider_db2cdc.errors import ConfigurationError, Db2CdcError

END_TIMEOUT_S = 60
HOLD = """
import sys, time
from pathlib import Path
from airflow_provider_db2cdc.demo.services.airflow_home import AirflowHome
from airflow_provider_db2cdc.demo.services.postgres import find_programs, running_server
with running_server(find_programs(), AirflowHome(Path(sys.argv[1]))) as url:
    print(url, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def programs() -> Path:
    try:
        return postgres.find_programs()
    except ConfigurationError as error:
        pytest.skip(str(error))


@pytest.fixture
def home(tmp_path: Path) -> AirflowHome:
    home = AirflowHome(empty(tmp_path / "ui"))
    home.logs.mkdir()
    return home


def folder_of(url: str) -> Path:
    return Path(parse_qs(urlsplit(url).query)["host"][0])


def processes_in(folder: Path) -> list[psutil.Process]:
    """Return the processes that work below a folder."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.cwd().startswith(str(folder)):
                found.append(process)
    return found


def listening(process: psutil.Process) -> list[str]:
    """Return the addresses of a network where a process listens."""
    with suppress(psutil.NoSuchProcess):
        return [str(one.laddr) for one in process.net_connections("inet") if one.status == psutil.CONN_LISTEN]
    return []


def test_airflow_reaches_the_server_with_both_drivers(programs: Path, home: AirflowHome) -> None:
    import asyncio

    from sqlalchemy import create_engine, text
    from sqlalchemy.ext.asyncio import create_async_engine

    async def version(url: str) -> str:
        engine = create_async_engine(url)
        async with engine.connect() as connection:
            found = (await connection.execute(text("SHOW server_encoding"))).scalar_one()
        await engine.dispose()
        return str(found)

    with postgres.running_server(programs, home) as url:
        engine = create_engine(url)
        with engine.begin() as connection:
            connection.execute(text("CREATE TABLE kept (id INTEGER)"))
        engine.dispose()
        assert asyncio.run(version(url.replace("+psycopg2", "+asyncpg"))) == "UTF8"


def test_only_its_user_reaches_the_server_and_nothing_remains(programs: Path, home: AirflowHome) -> None:
    with postgres.running_server(programs, home) as url:
        folder = folder_of(url)
        found = processes_in(folder)
        assert folder.stat().st_mode & 0o077 == 0
        assert found
        assert [address for process in found for address in listening(process)] == []
    assert not folder.exists()
    assert [process for process in found if process.is_running()] == []


def test_the_server_of_a_killed_program_ends_and_its_data_is_removed(programs: Path, home: AirflowHome) -> None:
    argv = [sys.executable, "-c", HOLD, str(home.folder)]
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        folder = folder_of(holder.stdout.readline().strip())
        assert processes_in(folder)
        holder.kill()
        wait_for(lambda: not processes_in(folder), END_TIMEOUT_S)
    assert folder.is_dir()
    assert [path.name for path in empty(home.folder).iterdir()] == [MARKER]
    assert not folder.exists()


def test_a_server_that_does_not_start_says_where_to_read_why(
    programs: Path, home: AirflowHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "SETTINGS", ["--port=none"])
    with (
        pytest.raises(Db2CdcError, match=r"PostgreSQL does not start\. Read .*/postgres\.log"),
        postgres.running_server(programs, home),
    ):
        pass
    assert 'invalid value for parameter "port"' in (home.logs / "postgres.log").read_text()


def test_a_machine_without_the_server_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(postgres, "DEBIAN", tmp_path)
    with pytest.raises(ConfigurationError, match=r"PostgreSQL is not installed\. Install Debian's `postgresql`"):
        postgres.find_programs()
