from collections.abc import Callable
from dataclasses import replace
from itertools import count

import pytest
from airflow.providers.common.compat.sdk import AirflowException
from airflow.sdk import Variable
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time import supervisor, task_runner
from airflow.sdk.execution_time.comms import ErrorResponse, GetVariable, OKResponse, PutVariable, VariableResult
from airflow.sdk.execution_time.secrets.execution_api import ExecutionAPISecretsBackend
from support.airflow_fixtures import Inside
from support.job_samples import job_result, table_result
from support.offset_request_contract import RequestContract, UnlockedStoreContract
from support.offset_store_contract import OffsetStoreContract
from support.variable_offsets import VariableOffsets

from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.offset import Offset
from airflow_provider_db2cdc.cdc.offset.request import Restart
from airflow_provider_db2cdc.cdc.offset.summary import PipelineSummary
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import OffsetError
from airflow_provider_db2cdc.offsets.commit import commit_tick
from airflow_provider_db2cdc.offsets.keyed import KeyedOffsetStore
from airflow_provider_db2cdc.offsets.variable import VariableOffsetStore, known_tables, variable_key

pytestmark = pytest.mark.airflow

ORDERS = TableId("SALES", "ORDERS")


def offset(number: int) -> Offset:
    return Offset(ORDERS, Lsn(number.to_bytes(16, "big")), 1, 1_700_000_000_000)


class TestVariables(OffsetStoreContract, RequestContract, UnlockedStoreContract):
    """The contract, on Airflow's own database."""

    numbers = count()

    @pytest.fixture
    def store(self, airflow_db: None) -> KeyedOffsetStore:
        from airflow_provider_db2cdc.offsets.metadata import MetadataVariables

        return VariableOffsetStore(f"contract{next(self.numbers)}", MetadataVariables())

    @pytest.fixture
    def again(self, store: VariableOffsetStore) -> Callable[[], KeyedOffsetStore]:
        from airflow_provider_db2cdc.offsets.metadata import MetadataVariables

        return lambda: VariableOffsetStore(store.pipeline, MetadataVariables())


def test_keys_are_named_after_the_pipeline_and_the_document() -> None:
    assert variable_key("sales.eu", "offsets") == "db2cdc.sales.eu~offsets"


def test_documents_are_kept_and_read_back_with_a_description(inside: Inside) -> None:
    def steps() -> tuple[Offset | None, Offset | None, Offset | None]:
        store = VariableOffsets("kept")
        before = store.get(ORDERS)
        store.put(offset(5))
        store.put_summary(PipelineSummary(handled_signal_ids=("1",)))
        store.request(ORDERS, Restart("r"))
        return before, store.get(ORDERS), VariableOffsets("other").get(ORDERS)

    assert inside(steps) == (None, replace(offset(5), restart=True, revision="r"), None)

    from airflow.models.variable import Variable as Row
    from airflow.utils.session import create_session

    with create_session() as session:
        rows = {row.key: row.description for row in session.query(Row).filter(Row.key.startswith("db2cdc.kept"))}
    assert {*rows} == {"db2cdc.kept~offsets", "db2cdc.kept~requests", "db2cdc.kept~summary"}
    assert all((about or "").startswith("Pipeline kept: ") for about in rows.values())


def test_form_suggests_the_tables_of_the_last_tick(inside: Inside) -> None:
    def steps() -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
        before = known_tables("suggested")
        VariableOffsets("suggested").put_summary(PipelineSummary(tables=(ORDERS,)))
        after = known_tables("suggested")
        Variable.set("db2cdc.suggested~summary", "{oops")
        return before, after, known_tables("suggested")

    assert inside(steps) == ({}, {'"SALES"."ORDERS"': "SALES.ORDERS"}, {})


def test_environment_that_shadows_a_document_is_named(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    variable = "AIRFLOW_VAR_DB2CDC.SHADOW~SUMMARY"
    monkeypatch.setenv(variable, PipelineSummary().to_json())
    with pytest.raises(OffsetError, match=f"the environment's {variable} gives another value.*Remove it there"):
        inside(lambda: VariableOffsets("shadow").texts.put("summary", "{}"))


class Api:
    """Airflow's API, as a task's Variables ask it; the next `down` questions find it out of reach."""

    def __init__(self) -> None:
        self.kept: dict[str, str | None] = {}
        self.down = 0
        self.calls = 0

    def send(self, message: object) -> object:
        self.calls += isinstance(message, GetVariable | PutVariable)
        if isinstance(message, PutVariable):
            self.kept[message.key] = message.value
            return OKResponse(ok=True)
        assert isinstance(message, GetVariable)
        if self.down:
            self.down -= 1
            # What the supervisor answers when its own tries are over.
            raise AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail={}))
        if message.key not in self.kept:
            return ErrorResponse(error=ErrorType.VARIABLE_NOT_FOUND, detail={"key": message.key})
        return VariableResult(key=message.key, value=self.kept[message.key])


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Api:
    api = Api()
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", api, raising=False)
    monkeypatch.setattr(supervisor, "ensure_secrets_backend_loaded", lambda: [ExecutionAPISecretsBackend()])
    return api


def test_offset_that_cannot_be_asked_for_is_not_taken_for_none(api: Api) -> None:
    store = VariableOffsets("p")
    assert store.get(ORDERS) is None
    assert store.summary() == PipelineSummary()
    store.put(offset(5))
    api.down = 2
    with pytest.raises(AirflowException, match=r"db2cdc\.p~requests \(API_SERVER_ERROR\)"):
        store.get(ORDERS)
    assert store.get(ORDERS) == offset(5)


def test_offset_that_can_be_asked_for_again_is_found(api: Api) -> None:
    store = VariableOffsets("p")
    store.put(offset(5))
    api.down = 1
    assert store.get(ORDERS) == offset(5)


def test_offset_that_cannot_be_read_back_is_not_said_to_be_shadowed(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    store = VariableOffsets("p")
    send = api.send

    def down_behind_a_write(message: object) -> object:
        answer = send(message)
        api.down = 2 if isinstance(message, PutVariable) else api.down
        return answer

    monkeypatch.setattr(api, "send", down_behind_a_write)
    with pytest.raises(AirflowException, match="could not be asked"):
        store.put(offset(7))


def test_calls_do_not_grow_with_the_tables(api: Api) -> None:
    def calls(pipeline: str, count: int) -> tuple[int, int]:
        """Return the calls that a plan makes, and those that a commit makes."""
        store, names = VariableOffsets(pipeline), [f"T{number}" for number in range(count)]
        commit_tick(job_result(*(table_result(name) for name in names), pipeline=pipeline), store)
        store.request(TableId("SALES", "OTHER"), Restart("r"))
        api.calls = 0
        seen = store.read()
        assert all(seen.get(TableId("SALES", name)) is not None for name in names)
        planned = api.calls
        commit_tick(job_result(*(table_result(name, upto=12) for name in names), pipeline=pipeline), store)
        return planned, api.calls - planned

    assert calls("many", 300) == calls("few", 1) == (3, 5)


class VaultBackend:
    """A secrets backend that has a value of its own for each Variable."""

    def get_variable(self, key: str) -> str:
        return "{}"


class SealedBackend:
    """A secrets backend that is out of reach."""

    def get_variable(self, key: str) -> None:
        raise PermissionError("hush")


def test_secrets_backend_that_shadows_the_offset_is_named(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    backends = [SealedBackend(), VaultBackend(), ExecutionAPISecretsBackend()]
    monkeypatch.setattr(supervisor, "ensure_secrets_backend_loaded", lambda: backends)
    with pytest.raises(OffsetError, match=r"the secrets backend VaultBackend gives another value.*Remove it there"):
        VariableOffsetStore("p").texts.put("summary", "{oops")


@pytest.mark.parametrize(("instead", "told"), [(None, "none"), ("{oops", "another value")])
def test_write_that_is_swallowed_is_not_said_to_be_shadowed(
    api: Api, monkeypatch: pytest.MonkeyPatch, instead: str | None, told: str
) -> None:
    def swallow(message: object) -> object:
        if isinstance(message, PutVariable):
            api.kept.pop(message.key, None)
            if instead is not None:
                api.kept[message.key] = instead
            return OKResponse(ok=True)
        return type(api).send(api, message)

    monkeypatch.setattr(api, "send", swallow)
    with pytest.raises(OffsetError, match=rf"Airflow gives {told} back, and no secrets backend has one.*API server"):
        VariableOffsetStore("p").texts.put("summary", "{}")
