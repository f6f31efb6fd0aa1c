"""One holder at a time: others wait, take over from the dead, and never from the living."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.memory_register import MemoryDriver, MemoryRegister, TestClock
from support.register_contract import check_register

from airflow_provider_db2cdc.errors import ConfigurationError, TargetLockedError
from airflow_provider_db2cdc.tick.lease.keeper import SystemClock, keep_lease
from airflow_provider_db2cdc.tick.lease.lease import Lease, LeaseTimes, RegisterContent

TIMES = LeaseTimes()
LONG_S = TIMES.wait_s + TIMES.expiry_s


def new_lease(register: MemoryRegister, holder: str = "run A", clock: TestClock | None = None) -> Lease:
    return Lease(register, holder, clock or TestClock(), TIMES)


def acquired(register: MemoryRegister, holder: str = "run A", clock: TestClock | None = None) -> Lease:
    lease = new_lease(register, holder, clock)
    lease.acquire(lambda text: None)
    return lease


def test_the_register_in_memory_keeps_the_contract() -> None:
    check_register(MemoryRegister())


@pytest.mark.parametrize("found", [None, RegisterContent("t", '{"released": true}')])
def test_a_free_lease_is_taken_at_once(found: RegisterContent | None) -> None:
    register, clock = MemoryRegister(found), TestClock()
    acquired(register, clock=clock)
    assert clock.seconds == TestClock().seconds
    assert register.found is not None
    assert "run A" in register.found.text


def test_a_released_lease_is_taken_at_once() -> None:
    register, clock = MemoryRegister(), TestClock()
    acquired(register).release()
    acquired(register, "run B", clock)
    assert clock.seconds == TestClock().seconds


def test_a_dead_holder_is_replaced_after_its_lease_expired() -> None:
    register, clock = MemoryRegister(), TestClock()
    acquired(register)
    heard: list[str] = []
    new_lease(register, "run B", clock).acquire(heard.append)
    assert TIMES.expiry_s <= clock.seconds - TestClock().seconds < TIMES.expiry_s + 2 * TIMES.poll_s
    assert heard == ["waits: run A holds the lease of the target"]


class Suspended(TestClock):
    """The clock of a machine that was suspended for long after the first wait."""

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if self.seconds == self.now_s():
            self.suspended_s = 10 * TIMES.expiry_s


def test_time_in_which_the_waiting_machine_was_suspended_does_not_count() -> None:
    """The holder may run on the same machine. Once that is resumed, the holder needs a moment to end."""
    register, clock = MemoryRegister(), Suspended()
    acquired(register)
    new_lease(register, "run B", clock).acquire(lambda text: None)
    assert clock.seconds - TestClock().seconds >= TIMES.expiry_s


def test_time_in_which_the_holders_machine_was_suspended_counts() -> None:
    clock = TestClock()
    lease = acquired(MemoryRegister(), clock=clock)
    clock.suspended_s = TIMES.give_up_s + 1
    assert lease.remaining_s < 0


@pytest.mark.parametrize("text", ["", "[]", "{}", "no JSON"])
def test_an_unknown_text_expires_too(text: str) -> None:
    register = MemoryRegister(RegisterContent("t", text))
    acquired(register, "run B")
    assert register.found is not None
    assert "run B" in register.found.text


class Renewing(TestClock):
    """A clock whose passing makes another holder renew its lease."""

    def __init__(self, holder: Lease) -> None:
        super().__init__()
        self.holder = holder

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        assert self.holder.renew()


def test_a_living_holder_is_waited_for_and_never_replaced() -> None:
    register = MemoryRegister()
    clock = Renewing(acquired(register))
    with pytest.raises(TargetLockedError, match="run A writes this target"):
        acquired(register, "run B", clock)
    assert TIMES.wait_s < clock.seconds - 1000.0 < LONG_S


def test_a_holder_that_was_replaced_cannot_renew_or_release() -> None:
    register = MemoryRegister()
    first, second = acquired(register), acquired(register, "run B")
    now = register.found
    assert not first.renew()
    first.release()
    assert register.found == now
    assert second.renew()


def test_a_store_that_ignores_conditions_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="ignores conditional writes"):
        acquired(MemoryRegister(checks=False))
    with pytest.raises(ConfigurationError, match="ignores conditional writes"):
        acquired(MemoryRegister(RegisterContent("t", '{"released": true}'), checks=False))


def test_a_renewal_whose_answer_was_lost_is_recognised() -> None:
    register = MemoryRegister()
    lease = acquired(register)
    register.loses_answers = True
    with pytest.raises(ConnectionError):
        lease.renew()
    register.loses_answers = False
    assert lease.renew()


def test_a_lease_is_stale_before_another_run_may_take_it() -> None:
    register, clock = MemoryRegister(), TestClock()
    lease = acquired(register, clock=clock)
    clock.sleep(TIMES.give_up_s)
    assert lease.remaining_s == 0
    clock.sleep(1)
    assert lease.remaining_s < 0
    assert TIMES.renew_s < TIMES.give_up_s < TIMES.expiry_s


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["acquire", "renew", "release", "pass"])), max_size=40))
def test_two_runs_never_hold_a_fresh_lease_together(steps: list[tuple[int, str]]) -> None:
    register, clock = MemoryRegister(), TestClock()
    times = LeaseTimes(wait_s=70)
    leases: dict[int, Lease] = {}
    for run, step in steps:
        match step:
            case "pass":
                clock.sleep(15)
            case "acquire" if run not in leases:
                lease = Lease(register, f"run {run}", clock, times)
                try:
                    lease.acquire(lambda text: None)
                except TargetLockedError:
                    continue
                leases[run] = lease
            case "renew" if run in leases and not leases[run].renew():
                del leases[run]
            case "release" if run in leases:
                leases.pop(run).release()
        assert sum(lease.remaining_s >= 0 for lease in leases.values()) <= 1


def quick(register: MemoryRegister) -> Lease:
    times = LeaseTimes(renew_s=0.01, give_up_s=0.2, expiry_s=0.3, poll_s=0.01, wait_s=1)
    return Lease(register, "run A", SystemClock(), times)


def test_a_kept_lease_is_renewed_and_then_released() -> None:
    register, driver = MemoryRegister(), MemoryDriver()
    with keep_lease(quick(register), driver, 0.01):
        assert register.found is not None
        first = register.found.tag
        wait_until(lambda: register.found is not None and register.found.tag != first)
    assert '"released": true' in register.found.text
    assert driver.ended == []


def test_a_run_that_loses_its_lease_is_ended() -> None:
    register, driver = MemoryRegister(), MemoryDriver()
    with keep_lease(quick(register), driver, 0.01):
        register.found = RegisterContent("other", '{"holder": "run B"}')
        wait_until(lambda: driver.ended)
    assert driver.ended[0] == "another run has taken over the lease of the target"
    assert register.found == RegisterContent("other", '{"holder": "run B"}')


def test_a_run_that_cannot_reach_its_store_is_ended() -> None:
    register, driver = MemoryRegister(), MemoryDriver()
    with keep_lease(quick(register), driver, 0.01):
        register.is_reachable = False
        wait_until(lambda: driver.ended)
        register.is_reachable = True
    assert "could not be renewed" in driver.ended[0]


def test_the_driver_has_a_deadline_from_the_start_and_with_each_renewal() -> None:
    register, driver = MemoryRegister(), MemoryDriver()
    with keep_lease(quick(register), driver, 0.01):
        [first] = driver.deadlines[:1]
        wait_until(lambda: len(driver.deadlines) > 3)
        renewed = [deadline for deadline in driver.deadlines if deadline is not None]
    assert first is not None
    assert all(0 < deadline <= 0.2 for deadline in renewed)
    assert driver.deadlines[-1] is None
    assert None not in driver.deadlines[:-1]


def test_a_run_that_cannot_release_its_lease_has_still_done_its_work(capsys: pytest.CaptureFixture[str]) -> None:
    register, driver = MemoryRegister(), MemoryDriver()
    with keep_lease(new_lease(register), driver):
        register.is_reachable = False
    assert "lease of the target was not released" in capsys.readouterr().out
    assert driver.ended == []


def wait_until(condition: object) -> None:
    for _ in range(500):
        if condition():  # type: ignore[operator]
            return
        threading.Event().wait(0.01)
    raise AssertionError("it did not happen")
