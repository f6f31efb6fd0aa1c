from __future__ import annotations

import pytest
from support.properties import config, refusal

from airflow_provider_db2cdc.config.transform import UNWRAP_SETTINGS, WITHOUT_MEANING, sort_transforms

UNWRAP = "io.debezium.transforms.ExtractNewRecordState"
ROUTER = "org.apache.kafka.connect.transforms.RegexRouter"


def named(alias: str, kind: str, **settings: str) -> dict[str, str]:
    return {
        f"transforms.{alias}.type": kind,
        **{f"transforms.{alias}.{name.replace('_', '.')}": value for name, value in settings.items()},
    }


@pytest.mark.parametrize("kind", [*WITHOUT_MEANING, *(f"{kind}$Value" for kind in WITHOUT_MEANING)])
def test_topics_and_case_have_no_meaning_here(kind: str) -> None:
    made = config(transforms="a", **named("a", kind, regex="x", replacement="y"))
    title = kind.rpartition(".")[2].split("$")[0]
    assert list(made.ignored) == ["transforms.a"]
    assert made.ignored["transforms.a"].startswith(f"{title}: it ")


def test_new_record_state_is_the_state_table() -> None:
    settings = {"drop_tombstones": "true", "delete_handling_mode": "rewrite", "add_fields": "op", "nonsense": "1"}
    made = config(transforms="unwrap", **named("unwrap", UNWRAP, **settings))
    reason = made.ignored["transforms.unwrap"]
    assert reason.startswith("ExtractNewRecordState: the state table holds what it makes")
    assert "drop.tombstones: the state table has no tombstones" in reason
    assert "delete.handling.mode: a deleted row leaves the state table" in reason
    assert "nonsense: it has no such setting" in reason
    assert made.tombstones is True, "the change log is not what the transform is about"


@pytest.mark.parametrize("name", UNWRAP_SETTINGS)
def test_each_setting_of_new_record_state_is_named(name: str) -> None:
    ignored, refused = sort_transforms(
        {"transforms": "u", "transforms.u.type": UNWRAP, f"transforms.u.{name}": "x", "transforms.u.predicate": "p"}
    )
    assert refused == {}
    assert f"{name}: {UNWRAP_SETTINGS[name]}" in ignored["transforms.u"]
    assert "predicate" not in ignored["transforms.u"]


def test_new_record_state_that_drops_fields_is_refused() -> None:
    text = refusal(transforms="u", **named("u", UNWRAP, drop_fields_header_name="gone"))
    assert text.startswith(
        "transforms.u: ExtractNewRecordState is not supported with drop.fields.header.name: exclude columns"
    )


@pytest.mark.parametrize(
    "kind",
    [
        "io.debezium.transforms.Filter",
        "org.apache.kafka.connect.transforms.Filter",
        "org.apache.kafka.connect.transforms.MaskField$Value",
        "org.apache.kafka.connect.transforms.InsertHeader",
        "org.apache.kafka.connect.transforms.DropHeaders",
        "io.debezium.transforms.ExtractChangedRecordState",
        "io.debezium.transforms.outbox.EventRouter",
        "com.mine.RegexRouter",
        "com.mine.ExtractNewRecordState",
    ],
)
def test_transform_that_changes_events_is_refused_once(kind: str) -> None:
    text = refusal(transforms="x", **named("x", kind, a="1", b="2", c="3"))
    title = kind.rpartition(".")[2].split("$")[0]
    assert text.startswith(f"transforms.x: {title} is not supported: do it in what reads the target")
    assert text.count("transforms.x") == 1


def test_each_refused_transform_is_named_and_the_others_are_not() -> None:
    text = refusal(
        transforms="route, mask ,filter",
        **named("route", ROUTER),
        **named("mask", "a.Mask", fields="x"),
        **named("filter", "b.Filter", predicate="p"),
        **{"predicates": "p", "predicates.p.type": "c.TopicNameMatches"},
    )
    assert text.startswith("correct 2 mistakes")
    assert "transforms.mask: Mask" in text
    assert "transforms.filter: Filter" in text
    assert "route" not in text
    assert "predicates" not in text


def test_predicates_of_ignored_transforms_are_ignored() -> None:
    made = config(
        transforms=["r"],
        **named("r", ROUTER, predicate="p"),
        **{"predicates": "p", "predicates.p.type": "x.TopicNameMatches", "predicates.p.pattern": "a.*"},
    )
    assert set(made.ignored) == {"transforms.r", "predicates", "predicates.p.type", "predicates.p.pattern"}


def test_transform_without_a_type_is_a_mistake() -> None:
    assert refusal(transforms="a", **{"transforms.b.type": ROUTER}).startswith("transforms.a: give its type")
    assert refusal(**{"transforms.a.fields": "SSN"}).startswith("transforms.a: give its type")


@pytest.mark.parametrize("listed", [{}, {"transforms": ""}, {"transforms": None}, {"transforms": "r"}])
def test_mask_that_is_not_named_is_refused_too(listed: dict[str, object]) -> None:
    text = refusal(**listed, **named("r", ROUTER), **named("a", "x.MaskField"))
    assert text.startswith("transforms.a: MaskField is not supported")


def test_transform_may_be_nested_or_in_snake_case() -> None:
    nested = config(**{"transforms": "r", "transforms.r": {"type": ROUTER}})
    assert nested.ignored.keys() == {"transforms.r"}
    assert config(transforms="r", transforms_r_type=ROUTER).ignored == nested.ignored
