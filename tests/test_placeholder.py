from __future__ import annotations

from pathlib import Path

import pytest
from support.properties import config, refusal

from airflow_provider_db2cdc.config.files.load import load_config
from airflow_provider_db2cdc.config.files.placeholder import resolve
from airflow_provider_db2cdc.errors import ConfigurationError

LOGIN = "database: {hostname: h, dbname: D, user: u, password: p}\n"
OTHER_FORMS = [
    "${vault:secret/db2}",
    "${file:/run/secrets:key}",
    "${secrets:ns/db2:key}",
    "a-${sys:x}-b",
    "${PASSWORD}",
    "${db2.pass}",
    "${vault:x",
    "${ENV:X}",
]
MALFORMED = ["${env:}", "${env:A-B}", "${env}", "${env: A}", "${env:A"]

PLACES = [
    "target: ./{0}/lake\n",
    "topic.prefix: '{0}'\n",
    "table.include.list: 'S.A,{0}'\n",
    "column.exclude.list: ['S.A.X', '{0}']\n",
    "message.key.columns: 'S.A:{0}'\n",
    "database.options: {{ProgramName: '{0}'}}\n",
    "driver.clientProgramName: '{0}'\n",
    "driver: {{clientProgramName: '{0}'}}\n",
    "spark.conf: {{spark.hadoop.fs.s3a.secret.key: '{0}'}}\n",
    "signal.consumer.sasl.password: '{0}'\n",
    "signal:\n  kafka.topic: '{0}'\n",
    "snapshot.select.statement.overrides: S.A\nsnapshot.select.statement.overrides.S.A: SELECT '{0}' FROM S.A\n",
    "database.server.name: '{0}'\n",
    "max.rows.per.batch: '{0}'\n",
]


def read(folder: Path, text: str, environ: dict[str, str] | None = None, with_database: bool = True) -> object:
    path = folder / "pipeline.yaml"
    target = "" if "target:" in text else "target: /x\n"
    path.write_text(f"pipeline: p\n{target}{text}", "utf-8")
    return load_config(path, environ or {}, with_database)


def said(folder: Path, text: str, environ: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigurationError) as caught:
        read(folder, text, environ)
    return str(caught.value)


class TestResolve:
    @pytest.mark.parametrize("value", ["${env:A}", ["x", "${env:A}"], {"k": {"l": "${env:A}"}}, "${env:A}${env:B}"])
    def test_variables_are_replaced_in_nested_values(self, value: object) -> None:
        replaced, wrong = resolve(value, {"A": "1", "B": "2"})
        assert wrong == []
        assert "$" not in str(replaced)

    @pytest.mark.parametrize("value", ["cost$", "$1", "${}", "T${1}", "${ a }", r"\$\{vault:x\}", "a${", 5, None, True])
    def test_other_texts_stay(self, value: object) -> None:
        assert resolve(value, {}) == (value, [])

    def test_value_of_a_variable_is_not_resolved_again(self) -> None:
        assert resolve("${env:A}", {"A": "${vault:x}"}) == ("${vault:x}", [])

    def test_spark_resolves_its_own_forms(self) -> None:
        conf = {
            "spark.sql.warehouse.dir": "${system:user.dir}/w",
            "spark.hadoop.x": "${user.name}",
            "spark.y": "${env:A}",
        }
        replaced, wrong = resolve(conf, {"A": "1"}, for_spark=True)
        assert (replaced, wrong) == ({**conf, "spark.y": "1"}, [])
        assert resolve("${vault:x}", {}, for_spark=True)[1]

    def test_all_missing_variables_are_named(self) -> None:
        wrong = resolve(["${env:A}", "${env:B}-${env:A}"], {})[1]
        assert [text.split(",")[0] for text in wrong] == [
            "set the environment variable A",
            "set the environment variable B",
        ]


class TestFile:
    @pytest.mark.parametrize("form", OTHER_FORMS)
    def test_password_with_another_form_is_refused_before_any_login(self, tmp_path: Path, form: str) -> None:
        text = said(tmp_path, LOGIN.replace("password: p", f"password: '{form}'"))
        assert text.startswith("database.password: write ${env:NAME}")
        assert form[4:] not in text, "what it names may be secret"

    @pytest.mark.parametrize(
        ("place", "form"),
        [
            *((place, "${vault:secret/db2}") for place in PLACES),
            *((place, "${PASSWORD}") for place in PLACES if "spark.conf" not in place),
        ],
    )
    def test_any_value_with_another_form_is_refused(self, tmp_path: Path, place: str, form: str) -> None:
        text = said(tmp_path, (LOGIN if "d" in place[:2] and "options" not in place else "") + place.format(form))
        assert "write ${env:NAME}" in text
        assert place.strip().split(":")[0].split(".")[0] in text

    @pytest.mark.parametrize("form", MALFORMED)
    def test_malformed_variable_is_refused(self, tmp_path: Path, form: str) -> None:
        assert said(tmp_path, f"topic.prefix: 'a{form}'\n", {"A": "x"}).startswith(
            "topic.prefix: write ${env:NAME}, with a"
        )

    def test_placeholder_of_an_ignored_property_stays(self, tmp_path: Path) -> None:
        read(tmp_path, "producer.sasl.jaas.config: '${file:/run/k:x}'\ndatabase.history.topic: '${env:NOT_SET}'\n")

    def test_placeholder_is_not_read_if_airflow_has_a_connection(self, tmp_path: Path) -> None:
        read(tmp_path, LOGIN.replace("password: p", "password: '${vault:x}'"), with_database=False)

    def test_password_from_the_environment_may_look_like_a_placeholder(self, tmp_path: Path) -> None:
        made = read(tmp_path, LOGIN.replace("password: p", "password: '${env:PW}'"), {"PW": "${vault:x}"})
        assert made.database.password.get_secret_value() == "${vault:x}"  # type: ignore[attr-defined]


class TestDag:
    @pytest.mark.parametrize("form", [*OTHER_FORMS, *MALFORMED, "${env:HOME}"])
    def test_no_form_is_resolved_in_arguments(self, form: str) -> None:
        for properties in (
            {"topic_prefix": form},
            {"table_include_list": ["A", form]},
            {"spark_conf": {"spark.a": form}},
        ):
            if "spark_conf" in properties and form in ("${PASSWORD}", "${db2.pass}"):
                continue
            assert next(iter(properties)) in refusal(**properties)

    def test_remedy_differs_from_that_for_files(self) -> None:
        assert "os.environ" in refusal(topic_prefix="${env:HOME}")
        assert "template" in refusal(topic_prefix="${vault:x}")

    def test_placeholder_of_an_ignored_property_stays(self) -> None:
        config(**{"transforms": "r", "transforms.r.type": "org.apache.kafka.connect.transforms.RegexRouter",
                  "transforms.r.replacement": "${routedByValue}"})  # fmt: skip
