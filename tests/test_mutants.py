"""The list of mutants matches the code. `make mutants` runs them."""

from collections import Counter

from mutants.mutant import PROMISES, ROOT, read_mutants

MUTANTS = read_mutants()


def test_each_mutant_changes_one_place_of_a_file_that_still_compiles() -> None:
    for mutant in MUTANTS:
        changed = mutant.mutated((ROOT / mutant.path).read_text("utf-8"))
        compile(changed, str(mutant.path), "exec")


def test_each_mutant_names_tests_that_exist() -> None:
    missing = {test for mutant in MUTANTS for test in mutant.tests if not exists(test)}
    assert missing == set()


def test_each_promise_has_at_least_three_mutants() -> None:
    counts = Counter(mutant.promise for mutant in MUTANTS)
    assert set(counts) == set(PROMISES)
    assert {promise: count for promise, count in counts.items() if count < 3} == {}
    assert len(MUTANTS) >= 60


def exists(test: str) -> bool:
    """Whether a folder or file of tests exists, and has the function that `test` names."""
    path, _, function = test.partition("::")
    if not function:
        return (ROOT / path).exists()
    return f"def {function.partition('[')[0]}(" in (ROOT / path).read_text("utf-8")
