import json

import pytest
from airflow.providers.common.compat.sdk import AirflowException
from airflow.sdk import Variable
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time import supervisor, task_runner
from airflow.sdk.execution_time.comms import ErrorResponse, GetVariable, OKResponse, PutVariable, VariableResult
from airflow.sdk.execution_time.secrets.execution_api import ExecutionAPISecretsBackend
from support.airflow_fixtures import Inside

from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.offset.offset import Offset
from airflow_provider_db2cdc.cdc.offset.summary import PipelineSummary
from airflow_provider_db2cdc.cdc.signal.signal import SignalOutcome
from airflow_provider_db2cdc.cdc.snapshot.progress import SnapshotProgress, TableSnapshotProgress
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import OffsetError
from airflow_provider_db2cdc.offsets.variable import MAX_KEY, VariableOffsetStore, summary_key, variable_key

pytestmark = pytest.mark.airflow

ORDERS = TableId("SALES", "ORDERS")


def offset(number: int, table: TableId = ORDERS, batch: int = 1) -> Offset:
    return Offset(table, Lsn(number.to_bytes(16, "big")), batch, 1_700_000_000_000)


def test_plain_name_has_a_readable_key() -> None:
    assert variable_key("sales", ORDERS) == "db2cdc.sales.SALES.ORDERS"
    assert variable_key("sales", TableId("S$1", "T_2")) == "db2cdc.sales.S$1.T_2"


TABLES = [
    TableId("SALES", "ORDERS"),
    TableId("SALES", "orders"),
    TableId("SALES", "Orders"),
    TableId("SALES.ORDERS", "X"),
    TableId("SALES", "ORDERS.X"),
    TableId("SALES", "ORDERS#X"),
    TableId("SALES", "ORDERS@X"),
    TableId("SALES", "ORDERS X"),
    TableId("SALES", "ORDERS-X"),
    TableId("SALES", "ORDERS%2EX"),
    TableId("SALES", "ORDÉRS"),
    TableId("S" * 128, "T" * 128),
    TableId("S" * 128, "T" * 127 + "U"),
]


def test_tables_never_share_a_key_even_where_case_is_folded() -> None:
    keys = [variable_key("p", table) for table in TABLES]
    assert len({key.upper() for key in keys}) == len(TABLES)


@pytest.mark.parametrize("table", TABLES, ids=str)
def test_key_survives_the_database_a_url_and_the_environment(table: TableId) -> None:
    key = variable_key("p" * 40, table)
    assert len(key) <= MAX_KEY
    assert key.isascii()
    assert not set(key) & set("#%@/? ")


def test_offset_is_kept_and_read_back_with_a_description(inside: Inside) -> None:
    def steps() -> tuple[Offset | None, Offset | None, str]:
        store = VariableOffsetStore("kept")
        before = store.get(ORDERS)
        store.put(offset(5))
        store.put(offset(7, batch=2))
        store.put(offset(7, batch=2))
        return before, store.get(ORDERS), str(Variable.get("db2cdc.kept.SALES.ORDERS"))

    before, after, text = inside(steps)
    assert before is None
    assert after == offset(7, batch=2)
    assert json.loads(text)["lsn"] == str(offset(7).lsn)

    from airflow.models.variable import Variable as Row
    from airflow.utils.session import create_session

    with create_session() as session:
        row = session.query(Row).filter(Row.key == "db2cdc.kept.SALES.ORDERS").one()
    assert "SALES.ORDERS" in (row.description or "")


def test_offset_never_moves_back(inside: Inside) -> None:
    def steps() -> Offset | None:
        store = VariableOffsetStore("back")
        store.put(offset(7))
        with pytest.raises(OffsetError, match="would move back"):
            store.put(offset(6))
        return store.get(ORDERS)

    assert inside(steps) == offset(7)


def test_environment_that_shadows_the_offset_is_named(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    variable = "AIRFLOW_VAR_DB2CDC.SHADOW.SALES.ORDERS"
    monkeypatch.setenv(variable, offset(3).to_json())
    with pytest.raises(OffsetError, match=f"the environment's {variable} gives another value.*Remove it there"):
        inside(lambda: VariableOffsetStore("shadow").put(offset(5)))


def test_variable_that_is_no_offset_is_named(inside: Inside) -> None:
    def steps() -> None:
        Variable.set("db2cdc.broken.SALES.ORDERS", "{oops")
        VariableOffsetStore("broken").get(ORDERS)

    with pytest.raises(OffsetError, match=r"Variable db2cdc\.broken\.SALES\.ORDERS cannot be read"):
        inside(steps)


def test_variable_of_another_table_is_refused(inside: Inside) -> None:
    def steps() -> None:
        Variable.set("db2cdc.mixed.SALES.ORDERS", offset(5, TableId("SALES", "ITEMS")).to_json())
        VariableOffsetStore("mixed").get(ORDERS)

    with pytest.raises(OffsetError, match=r"holds the offset of SALES\.ITEMS, not of SALES\.ORDERS"):
        inside(steps)


def test_backlog_is_kept_and_read_back_with_a_description(inside: Inside) -> None:
    summary = PipelineSummary(
        (SnapshotProgress("a", "initial", "running", (TableSnapshotProgress(ORDERS, "reading", 1, 4, 10),), 5),),
        (SignalOutcome("1", "airflow", "refused", "why"),),
        ("2",),
    )

    def steps() -> tuple[PipelineSummary, PipelineSummary, Offset | None, PipelineSummary]:
        store = VariableOffsetStore("backlogged")
        before = store.summary()
        store.put(offset(5))
        store.put_summary(PipelineSummary())
        store.put_summary(summary)
        return before, store.summary(), store.get(ORDERS), VariableOffsetStore("other").summary()

    assert inside(steps) == (PipelineSummary(), summary, offset(5), PipelineSummary())

    from airflow.models.variable import Variable as Row
    from airflow.utils.session import create_session

    with create_session() as session:
        row = session.query(Row).filter(Row.key == "db2cdc.backlogged~summary").one()
    assert "Pipeline backlogged" in (row.description or "")


def test_backlog_shares_its_key_with_no_table_of_any_pipeline() -> None:
    pipelines = ["p", "p.S", "p.S.T", "p.SALES.ORDERS", "p.summary"]
    keys = [variable_key(pipeline, table) for pipeline in pipelines for table in [TableId("S", "T"), *TABLES]]
    assert not {key.upper() for key in keys} & {summary_key(pipeline).upper() for pipeline in pipelines}


def test_environment_that_shadows_the_backlog_is_named(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    variable = "AIRFLOW_VAR_DB2CDC.SHADOWED~SUMMARY"
    monkeypatch.setenv(variable, PipelineSummary().to_json())
    with pytest.raises(OffsetError, match=f"the environment's {variable} gives another value"):
        inside(lambda: VariableOffsetStore("shadowed").put_summary(PipelineSummary(handled_signal_ids=("1",))))


def test_variable_that_is_no_backlog_is_named(inside: Inside) -> None:
    def steps() -> None:
        Variable.set("db2cdc.littered~summary", "{oops")
        VariableOffsetStore("littered").summary()

    with pytest.raises(OffsetError, match=r"Variable db2cdc\.littered~summary cannot be read.*Delete it"):
        inside(steps)


class Api:
    """Airflow's API, as a task's Variables ask it; the next `down` questions find it out of reach."""

    def __init__(self) -> None:
        self.kept: dict[str, str | None] = {}
        self.down = 0

    def send(self, message: object) -> object:
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
    store = VariableOffsetStore("p")
    assert store.get(ORDERS) is None
    assert store.summary() == PipelineSummary()
    store.put(offset(5))
    api.down = 2
    with pytest.raises(AirflowException, match=r"db2cdc\.p\.SALES\.ORDERS \(API_SERVER_ERROR\)"):
        store.get(ORDERS)
    assert store.get(ORDERS) == offset(5)


def test_offset_that_can_be_asked_for_again_is_found(api: Api) -> None:
    store = VariableOffsetStore("p")
    store.put(offset(5))
    api.down = 1
    assert store.get(ORDERS) == offset(5)


def test_offset_that_cannot_be_read_back_is_not_said_to_be_shadowed(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    store = VariableOffsetStore("p")
    send = api.send

    def down_behind_a_write(message: object) -> object:
        answer = send(message)
        api.down = 2 if isinstance(message, PutVariable) else api.down
        return answer

    monkeypatch.setattr(api, "send", down_behind_a_write)
    with pytest.raises(AirflowException, match="could not be asked"):
        store.put(offset(7))


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
        VariableOffsetStore("p").put_summary(PipelineSummary(handled_signal_ids=("1",)))


@pytest.mark.parametrize(("instead", "told"), [(None, "none"), ("{}", "another value")])
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
        VariableOffsetStore("p").put_summary(PipelineSummary(handled_signal_ids=("1",)))
