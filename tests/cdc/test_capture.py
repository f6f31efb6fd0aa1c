from dataclasses import replace

import pytest

from airflow_provider_db2cdc.cdc.capture import CaptureIdentity, CaptureInstance, check_state
from airflow_provider_db2cdc.cdc.lsn import Lsn
from airflow_provider_db2cdc.cdc.table import TableId
from airflow_provider_db2cdc.errors import RegistrationError


def instance(state: str, info: str = "") -> CaptureInstance:
    identity = CaptureIdentity("ASNCDC.CD", "", "", "")
    return CaptureInstance(TableId("S", "T"), "ASNCDC", "CD", state, info, "DI", None, None, None, (), identity)


def test_the_digest_of_an_identity_changes_with_each_of_its_parts_and_with_nothing_else():
    identity = CaptureIdentity("ASNCDC.CD", "2024", "2023", "0a")
    others = [replace(identity, **{name: "x"}) for name in ("change_table", "created", "source_created", "cold_start")]
    assert len({identity.digest, *(other.digest for other in others)}) == 5
    assert identity.digest == CaptureIdentity("ASNCDC.CD", "2024", "2023", "0a").digest
    assert CaptureIdentity("a", "b", "", "").digest != CaptureIdentity("a", "", "b", "").digest


def test_either_position_shows_that_the_agent_has_read_the_registration():
    unread, at = instance("A"), Lsn(bytes(15) + b"\x01")
    assert not unread.has_captured
    assert replace(unread, floor=at).has_captured
    assert replace(unread, newest=at).has_captured


def test_an_active_registration_passes():
    check_state(instance("A"), "ASNCDC")


@pytest.mark.parametrize(
    ("state", "info", "problem", "remedy"),
    [
        ("I", "", r"S\.T is registered in state 'I', so", r"UPDATE MYASN\.IBMSNAP_REGISTER SET STATE = 'A'"),
        ("S", "ASN0123", r"state 'S' \(STATE_INFO ASN0123\), so", "stopped it after an error"),
        ("", "", "state ''", "Set STATE to 'A'"),
        ("X", "", "state 'X'", "Set STATE to 'A'"),
    ],
)
def test_any_other_state_is_refused_with_its_own_remedy(state, info, problem, remedy):
    with pytest.raises(RegistrationError, match=problem) as raised:
        check_state(instance(state, info), "MYASN")
    assert remedy.replace("\\", "") in raised.value.remedy
