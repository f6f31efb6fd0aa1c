from __future__ import annotations

import shutil
import zipfile
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path

import pytest

from airflow_provider_db2cdc.errors import ConfigurationError
from airflow_provider_db2cdc.submit import jars
from airflow_provider_db2cdc.submit.home import jars_of_spark, spark_binary
from airflow_provider_db2cdc.submit.jars import JARS, Jar, ensure_jars, spark_classpath, spark_packages
from airflow_provider_db2cdc.submit.stores import HADOOP_VERSION, store_part

CONTENT = {"a.jar": b"first", "b.jar": b"second"}
DELTA = [jar.name for jar in JARS if jar.part == "spark" and "jcc" not in jar.name]
[DRIVER] = [jar.name for jar in JARS if jar.part == "spark" and "jcc" in jar.name]
SMALL = tuple(Jar("spark", name, sha256(content).hexdigest()) for name, content in CONTENT.items())


class FakeIvy:
    """Resolves to files of known content and counts how often it is asked."""

    def __init__(self, content: dict[str, bytes]) -> None:
        self.content = content
        self.asked: list[Sequence[str]] = []

    def __call__(self, coordinates: Sequence[str], scratch: Path) -> Iterable[Path]:
        self.asked.append(coordinates)
        for name, content in {**self.content, "spark-ships-it.jar": b"x"}.items():
            (scratch / name).write_bytes(content)
            yield scratch / name


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "JARS", SMALL)


def test_folder_is_filled_once_with_the_jars_missing_from_spark(tmp_path: Path) -> None:
    ivy = FakeIvy(CONTENT)
    assert {path.name for path in ensure_jars(tmp_path, ["spark"], ivy)} == {"a.jar", "b.jar"}
    assert {path.name for path in (tmp_path / "spark").iterdir()} == {"a.jar", "b.jar"}
    assert ensure_jars(tmp_path, ["spark"], ivy) == []
    assert len(ivy.asked) == 1


def test_other_versions_of_a_jar_are_removed_and_a_users_jar_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, old, own = "io.d_d-spark_4.2_2.13-4.4.0.jar", "io.d_d-spark_4.1_2.13-4.3.1.jar", "io.d_d-own-1.jar"
    monkeypatch.setattr(jars, "JARS", (Jar("spark", name, sha256(b"new").hexdigest()),))
    (tmp_path / "spark").mkdir()
    for one in (old, own):
        (tmp_path / "spark" / one).write_bytes(b"old")
    ensure_jars(tmp_path, ["spark"], FakeIvy({name: b"new"}))
    assert {path.name for path in (tmp_path / "spark").iterdir()} == {name, own}


def test_damaged_file_is_replaced(tmp_path: Path) -> None:
    ensure_jars(tmp_path, ["spark"], FakeIvy(CONTENT))
    (tmp_path / "spark" / "a.jar").write_bytes(b"half")
    assert [path.name for path in ensure_jars(tmp_path, ["spark"], FakeIvy(CONTENT))] == ["a.jar"]
    assert (tmp_path / "spark" / "a.jar").read_bytes() == b"first"


def test_file_that_was_not_tested_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"a\.jar is not the file"):
        ensure_jars(tmp_path, ["spark"], FakeIvy({**CONTENT, "a.jar": b"other"}))
    assert not (tmp_path / "spark" / "a.jar").exists()


def test_file_that_was_not_downloaded_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"b\.jar"):
        ensure_jars(tmp_path, ["spark"], FakeIvy({"a.jar": b"first"}))


def test_table_covers_driver_delta_and_derby() -> None:
    names = [jar.name for jar in JARS]
    for part in ("com.ibm.db2_jcc-", "io.delta_delta-spark_4.2_2.13-4.4.0", "io.delta_delta-storage", "derbynet"):
        assert any(part in name for name in names), part


@pytest.mark.parametrize(
    ("spark", "delta", "coordinate"),
    [
        ("4.2.0", "4.4.0", "io.delta:delta-spark_4.2_2.13:4.4.0"),
        ("4.1.1", "4.1.0", "io.delta:delta-spark_4.1_2.13:4.1.0"),
        ("4.0.1", "4.0.0", "io.delta:delta-spark_2.13:4.0.0"),
    ],
)
def test_delta_is_named_after_the_spark_line(spark: str, delta: str, coordinate: str) -> None:
    assert spark_packages(spark, delta)[0] == coordinate


def test_another_delta_has_no_tested_jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "DELTA_VERSION", "9.9.9")
    with pytest.raises(ConfigurationError, match=r"spark\.packages"):
        ensure_jars(tmp_path, ["spark"], FakeIvy(CONTENT))


STORAGE, KERNEL = (f"io.delta_delta-{name}-4.4.0.jar" for name in ("storage", "kernel-api"))
SPARK = next(name for name in DELTA if "delta-spark" in name)


def packed(*paths: Path) -> None:
    """Write archives, as jars are."""
    for path in paths:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("META-INF/MANIFEST.MF", path.name)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that holds each tested jar of Spark's part, by content of its own."""
    packed(*(tmp_path / name for name in (*DELTA, DRIVER)))
    digests = {path.name: sha256(path.read_bytes()).hexdigest() for path in tmp_path.iterdir()}
    monkeypatch.setattr(jars, "JARS", tuple(Jar("spark", name, digest) for name, digest in digests.items()))
    return tmp_path


class TestClasspath:
    def test_folder_or_its_spark_part(self, folder: Path) -> None:
        (folder / "all" / "spark").mkdir(parents=True)
        for name in (*DELTA, DRIVER):
            shutil.copy(folder / name, folder / "all" / "spark" / name)
        for chosen in (folder / "all", folder):
            found, packages = spark_classpath(chosen)
            assert [path.name for path in found] == sorted((*DELTA, DRIVER))
            assert packages == []

    def test_empty_folder_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match="db2cdc jars --into"):
            spark_classpath(tmp_path)

    @pytest.mark.parametrize(
        ("gone", "lacking"),
        [
            ([DRIVER], "IBM's JDBC driver (jcc)"),
            ([*DELTA], "delta-spark, delta-storage"),
            ([SPARK], "delta-spark"),
            ([STORAGE], "delta-storage"),
            ([KERNEL], KERNEL),
            ([DRIVER, KERNEL], f"IBM's JDBC driver (jcc), {KERNEL}"),
        ],
    )
    def test_folder_without_one_of_the_artifacts_is_refused(self, folder: Path, gone: list[str], lacking: str) -> None:
        packed(folder / "mine-1.jar")
        for name in gone:
            (folder / name).unlink()
        with pytest.raises(ConfigurationError) as refused:
            spark_classpath(folder)
        assert refused.value.problem == f"the jars folder {folder} lacks {lacking}"
        assert refused.value.remedy == f"Fill it with `db2cdc jars --into {folder}`."

    def test_folder_named_by_the_environment_is_also_checked(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("DB2CDC_JARS", str(tmp_path))
        with pytest.raises(ConfigurationError, match="lacks delta-spark, delta-storage, IBM"):
            spark_classpath(None)
        monkeypatch.setenv("DB2CDC_JARS", str(tmp_path / "none"))
        with pytest.raises(ConfigurationError, match=r"the jars folder .*none of \$DB2CDC_JARS does not exist"):
            spark_classpath(None)
        with pytest.raises(ConfigurationError, match=r"the jars folder .*none does not exist"):
            spark_classpath(tmp_path / "none")
        # With all packages named, no folder is needed.
        assert spark_classpath(None, ["io.delta:delta-spark_4.1_2.13:4.1.0", "com.ibm.db2:jcc:12.1.3.0"]) == ([], [])

    @pytest.mark.parametrize("name", [DRIVER, "mine-1.jar"])
    def test_truncated_jar_is_refused_by_name(self, folder: Path, name: str) -> None:
        packed(folder / "mine-1.jar")
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: len(content) // 2])
        with pytest.raises(ConfigurationError) as refused:
            spark_classpath(folder)
        assert refused.value.problem == f"{name} in the jars folder {folder} is damaged"

    def test_jar_named_like_a_tested_jar_must_have_its_content(self, folder: Path) -> None:
        with zipfile.ZipFile(folder / STORAGE, "a") as archive:
            archive.writestr("more", "x")
        with pytest.raises(ConfigurationError, match=f"{STORAGE} in the jars folder .* is damaged"):
            spark_classpath(folder)

    def test_older_delta_needs_its_storage_and_no_tested_jar(self, tmp_path: Path) -> None:
        names = ["delta-spark_2.13-4.0.0.jar", "delta-storage-4.0.0.jar", "db2jcc4.jar"]
        packed(*(tmp_path / name for name in names))
        found, _ = spark_classpath(tmp_path)
        assert [path.name for path in found] == sorted(names)

    @pytest.mark.parametrize(
        ("named", "added"),
        [
            (["org.apache.hadoop:hadoop-aws:3.4.1"], [*DELTA, DRIVER, "mine-1.jar"]),
            (["io.delta:delta-spark_2.13:4.0.0"], [DRIVER, "mine-1.jar"]),
            (["/opt/delta-spark_4.1_2.13-4.2.0.jar", "/opt/db2jcc4.jar"], ["mine-1.jar"]),
            (["com.ibm.db2:jcc:11.5.9.0"], [*DELTA, "mine-1.jar"]),
            (["s3://jars/com.ibm.db2_jcc-11.5.9.0.jar", "/opt/db2jcc_license_cu.jar"], [*DELTA, "mine-1.jar"]),
            (["/opt/db2jcc_license_cu.jar", "/opt/my-delta.jar"], [*DELTA, DRIVER, "mine-1.jar"]),
            (["/opt/delta-spark/a.jar", "s3://jcc-1/db2.jar", "local:/jcc.d/b.jar"], [*DELTA, DRIVER, "mine-1.jar"]),
            (["com.ibm.db2.jcc:db2jcc_license_cu:4.1", "a:my-delta-spark:1"], [*DELTA, DRIVER, "mine-1.jar"]),
            (["local:///opt/io.delta_delta-spark_2.13-4.0.0.jar", "local:///opt/jcc-12.jar"], ["mine-1.jar"]),
        ],
    )
    def test_a_users_delta_or_driver_is_the_only_one(self, folder: Path, named: list[str], added: list[str]) -> None:
        packed(folder / "mine-1.jar")
        found, packages = spark_classpath(folder, named)
        assert ({path.name for path in found}, packages) == ({*added}, [])

    def test_delta_of_a_folder_is_ignored_if_another_delta_is_named(self, tmp_path: Path) -> None:
        packed(tmp_path / "delta-spark_2.13-4.0.0.jar", tmp_path / "jcc-12.jar")
        assert spark_classpath(tmp_path, ["io.delta:delta-spark_4.1_2.13:4.1.0"]) == ([tmp_path / "jcc-12.jar"], [])

    def test_a_folder_without_jars_is_enough_if_all_packages_are_named(self, tmp_path: Path) -> None:
        named = ["io.delta:delta-spark_4.1_2.13:4.1.0", "com.ibm.db2:jcc:12.1.3.0"]
        assert spark_classpath(tmp_path, named) == ([], [])

    def test_without_a_folder_the_installed_versions_are_fetched(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("DB2CDC_JARS", raising=False)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        delta, driver = spark_packages()
        assert spark_classpath(None) == ([], [delta, driver])
        assert spark_classpath(None, ["g:a:1"]) == ([], [delta, driver])
        assert spark_classpath(None, ["io.delta:delta-spark_2.13:4.0.0"]) == ([], [driver])
        assert spark_classpath(None, ["com.ibm.db2:jcc:11.5.9.0"]) == ([], [delta])


def filled_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with Spark's part and a client of S3 of two jars."""
    (tmp_path / "spark").mkdir()
    (tmp_path / "s3").mkdir()
    packed(*(tmp_path / "spark" / name for name in (*DELTA, DRIVER)))
    packed(*(tmp_path / "s3" / name for name in ("org.x_hadoop-aws-3.jar", "org.x_sdk-2.jar")))
    known = [Jar(path.parent.name, path.name, sha256(path.read_bytes()).hexdigest()) for path in tmp_path.glob("*/*")]
    monkeypatch.setattr(jars, "JARS", tuple(known))
    return tmp_path


def test_client_of_a_store_is_added_where_it_was_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = filled_store(tmp_path, monkeypatch)
    names = [path.name for path in spark_classpath(folder)[0]]
    assert names[-2:] == ["org.x_hadoop-aws-3.jar", "org.x_sdk-2.jar"]
    shutil.rmtree(folder / "s3")
    assert len(spark_classpath(folder)[0]) == len(names) - 2


@pytest.mark.parametrize("own", ["hadoop-aws-3.4.1.jar", "org.apache.hadoop:hadoop-aws:3.4.2"])
def test_client_of_a_store_is_not_added_to_a_users_own(
    own: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, _ = spark_classpath(filled_store(tmp_path, monkeypatch), [own])
    assert not any(path.parent.name == "s3" for path in taken)


def test_part_of_a_stores_client_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = filled_store(tmp_path, monkeypatch)
    (folder / "s3" / "org.x_sdk-2.jar").unlink()
    with pytest.raises(ConfigurationError, match=r"db2cdc jars --with s3 --into"):
        spark_classpath(folder)


def test_store_without_tested_jars_is_refused_with_its_coordinates() -> None:
    with pytest.raises(ConfigurationError, match=r"org\.apache\.hadoop:hadoop-azure:3\.5\.0"):
        store_part("azure")


def test_client_of_s3_fits_the_hadoop_of_the_installed_spark() -> None:
    [hadoop] = [name for name in jars_of_spark(spark_binary()) if name.startswith("hadoop-client-api-")]
    assert hadoop == f"hadoop-client-api-{HADOOP_VERSION}.jar"
