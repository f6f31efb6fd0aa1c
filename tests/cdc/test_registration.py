from dataclasses import replace

import pytest

from airflow_provider_db2cdc.cdc.capture.registration import CaptureIdentity, CaptureRegistration, check_state
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import RegistrationError


def instance(state: str, info: str = "") -> CaptureRegistration:
    identity = CaptureIdentity("ASNCDC.CD", "", "", "")
    return CaptureRegistration(TableId("S", "T"), "ASNCDC", "CD", state, info, "DI", None, None, None, (), identity)


def test_the_digest_of_an_identity_changes_with_each_of_its_parts() -> None:
    identity = CaptureIdentity("ASNCDC.CD", "2024", "2023", "0a")
    others = [replace(identity, **{name: "x"}) for name in ("change_table", "created", "source_created", "cold_start")]
    assert len({identity.digest, *(other.digest for other in others)}) == 5
    assert identity.digest == CaptureIdentity("ASNCDC.CD", "2024", "2023", "0a").digest
    assert CaptureIdentity("a", "b", "", "").digest != CaptureIdentity("a", "", "b", "").digest


def test_either_position_shows_that_the_agent_has_read_the_registration() -> None:
    unread, at = instance("A"), Lsn(bytes(15) + b"\x01")
    assert not unread.has_captured
    assert replace(unread, pruned_upto=at).has_captured
    assert replace(unread, new_synchpoint=at).has_captured


def test_an_active_registration_passes() -> None:
    check_state(instance("A"), "ASNCDC")


ACTIVATE = (
    "`UPDATE MYASN.IBMSNAP_REGISTER SET STATE = 'A' WHERE SOURCE_OWNER = 'S' AND SOURCE_TABLE = 'T'`, "
    "then `VALUES MYASN.ASNCDCSERVICES('reinit', 'myasn')`."
)


@pytest.mark.parametrize(
    ("state", "info", "problem", "remedy"),
    [
        ("I", "", r"S\.T is registered in state 'I', so", f"Activate it: {ACTIVATE}"),
        (
            "S",
            "ASN0123",
            r"state 'S' \(STATE_INFO ASN0123\), so",
            f"The agent stopped it after an error: see its log and repair that. Then activate it: {ACTIVATE}",
        ),
        ("", "", "state ''", f"Activate it: {ACTIVATE}"),
        ("X", "", "state 'X'", f"Activate it: {ACTIVATE}"),
    ],
)
def test_any_other_state_is_refused_with_statements_for_only_this_table(
    state: str, info: str, problem: str, remedy: str
) -> None:
    with pytest.raises(RegistrationError, match=problem) as raised:
        check_state(instance(state, info), "MYASN")
    assert raised.value.remedy == remedy


def test_names_in_a_remedy_are_literals_of_sql() -> None:
    odd = replace(instance("I"), table=TableId("O'S", "T'"))
    with pytest.raises(RegistrationError, match="WHERE SOURCE_OWNER = 'O''S' AND SOURCE_TABLE = 'T'''"):
        check_state(odd, "MYASN")
