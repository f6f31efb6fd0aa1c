from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from airflow_provider_db2cdc.config.files.text import parse_text
from airflow_provider_db2cdc.errors import ConfigurationError

YAML, PROPERTIES = Path("p.yaml"), Path("p.properties")


def said(text: str, file: Path = YAML) -> str:
    with pytest.raises(ConfigurationError) as caught:
        parse_text(text, file)
    return str(caught.value)


class TestJson:
    @pytest.mark.parametrize("seed", range(40))
    def test_comments_tabs_and_trailing_commas_change_nothing(self, seed: int) -> None:
        """Texts that look like comments or commas before a brace stay as they are inside strings."""
        chance = random.Random(seed)
        parts = ["//", "/*", "*/", ",]", ",}", "\\", '"', "a", " ", "{", "\t", "é", "#", ": ", "\n", "\U0001f600"]

        def text() -> str:
            return "".join(chance.choice(parts) for _ in range(chance.randrange(6)))

        data = {f"{text()}{at}": chance.choice([text(), [text(), text()], {"x": text()}, 1, None]) for at in range(5)}
        lines = json.dumps(data, indent="\t", ensure_ascii=chance.random() < 0.5).split("\n")
        noise = ["", '\t// {"a": \'b', " /* , } */", " // ]", "\t"]
        noisy = "\n".join(line + chance.choice(noise) for line in lines[:-1])
        start = chance.choice(["", "// first\n", "\n\t", "/* two\nlines */"])
        assert parse_text(f"{start}{noisy},\n{lines[-1]}\n", YAML) == (data, {})

    def test_yaml_in_braces_is_read_as_yaml(self) -> None:
        assert parse_text("{pipeline: p, target: /x}", YAML) == ({"pipeline": "p", "target": "/x"}, {})

    def test_broken_json_is_refused_by_its_line(self) -> None:
        assert (
            said('{\n// one\n"a": 1\n"b": 2}') == "p.yaml is not JSON at line 4: Expecting ',' delimiter. Correct it."
        )

    def test_text_after_the_json_is_refused_with_a_remedy(self) -> None:
        assert "line 4: text follows the JSON; write other properties above" in said('{\n"a": 1\n}\ntarget: /x\n')

    @pytest.mark.parametrize(("again", "names"), [("1", set()), ("2", {"a"})])
    def test_name_with_two_values_is_a_mistake(self, again: str, names: set[str]) -> None:
        data, twice = parse_text(f'{{"a": 1, "a": {again}}}', YAML)
        assert (data, set(twice)) == ({"a": 1}, names)

    @pytest.mark.parametrize("text", ["[1]", "{}x", "{", "// only\n"])
    def test_json_that_is_not_a_mapping_is_refused(self, text: str) -> None:
        assert said(text).startswith("p.yaml")


class TestBelowYaml:
    def test_json_is_read_with_the_properties_above(self) -> None:
        data, twice = parse_text(
            'pipeline: p\n# more\n{\n\t"name": "c", // of Kafka Connect\n\t"config": {}\n}\n', YAML
        )
        assert (data, twice) == ({"pipeline": "p", "name": "c", "config": {}}, {})

    def test_json_may_be_indented(self) -> None:
        assert parse_text('a: 1\n  {\n    "b": {\n      "c": 2\n    }\n  }\n', YAML) == ({"a": 1, "b": {"c": 2}}, {})

    def test_json_that_contradicts_the_properties_above_is_a_mistake(self) -> None:
        assert parse_text('a: 1\nb: 1\n{"a": 2, "b": 1}', YAML)[1].keys() == {"a"}

    def test_broken_json_is_refused_by_its_line(self) -> None:
        assert "not JSON at line 3" in said('a: 1\n{\n"b" 2}')

    def test_json_is_not_searched_in_yaml_values(self) -> None:
        assert parse_text("a:\n  b: |\n    {x\nc: {d: 1}\n", YAML)[0] == {"a": {"b": "{x\n"}, "c": {"d": 1}}


class TestYaml:
    def test_yaml_with_tabs_is_refused_with_a_remedy(self) -> None:
        assert said("a:\n\tb: 1\n") == "p.yaml is neither YAML nor JSON at line 2. Indent YAML with blanks, not tabs."

    def test_yaml_of_several_documents_is_refused(self) -> None:
        assert "leave one document in p.yaml" in said("a: 1\n---\nb: 1\n")

    def test_lines_of_java_properties_are_named(self) -> None:
        assert "suffix .properties" in said("a.b=1\nc.d=2\n")

    @pytest.mark.parametrize(
        "text", ["a: 2026-13-45", "a: !!timestamp x", "a: !!float x", "a: !!float", "a: !!bool x", "? [a]\n: {b: c}"]
    )
    def test_broken_yaml_is_refused(self, text: str) -> None:
        assert said(text).startswith("p.yaml is neither YAML nor JSON")

    def test_value_with_a_problem_is_not_shown(self) -> None:
        assert "s3cret" not in said("password: *s3cret\n")


@pytest.mark.parametrize("file", [YAML, PROPERTIES])
def test_file_that_is_not_text_is_refused(file: Path) -> None:
    assert said("a=b".encode("utf-16-le").decode(), file) == f"{file} is not text. Save it as UTF-8."


class TestProperties:
    @pytest.mark.parametrize(
        ("line", "pair"),
        [
            ("a.b=c", ("a.b", "c")),
            ("  a.b = c d ", ("a.b", "c d ")),
            ("a.b:c=d", ("a.b", "c=d")),
            ("a.b c", ("a.b", "c")),
            ("a.b=", ("a.b", "")),
            ("a.b", ("a.b", "")),
            (r"a\=b=\u0041\tx\\y\.z", ("a=b", "A\tx\\y.z")),
            ("a=b,\\\n    c", ("a", "b,c")),
            ("a=b\\\\\n#x", ("a", "b\\")),
            ("a=b#c!d", ("a", "b#c!d")),
        ],
    )
    def test_properties_are_read_as_java_does(self, line: str, pair: tuple[str, str]) -> None:
        assert parse_text(f"# one\n! two\n\n{line}\n", PROPERTIES) == (dict([pair]), {})

    def test_name_with_two_values_is_a_mistake(self) -> None:
        assert parse_text("a=1\na=1\nb=1\nb=2\n", PROPERTIES)[1].keys() == {"b"}
