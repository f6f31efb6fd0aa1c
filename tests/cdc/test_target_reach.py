import pytest

from airflow_provider_db2cdc.cdc.target_reach import check_reach
from airflow_provider_db2cdc.errors import ConfigurationError

LOCAL_FS, HDFS = "file:///", "hdfs://namenode:8020"
CLUSTERS = ("spark://host:7077", "yarn", "k8s://https://host:6443")


@pytest.mark.parametrize("master", CLUSTERS)
@pytest.mark.parametrize(
    ("location", "default_fs"),
    [
        ("/lake/sales", LOCAL_FS),
        ("/lake/sales", ""),
        ("lake/sales", LOCAL_FS),
        ("file:/lake", HDFS),
        ("FILE:///lake", HDFS),
    ],
)
def test_a_local_path_is_refused_on_a_cluster(location: str, default_fs: str, master: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        check_reach(location, default_fs, master, is_shared_mount=False)
    assert location in refused.value.problem
    assert master in refused.value.problem
    assert "target.shared.mount=true" in refused.value.remedy
    check_reach(location, default_fs, master, is_shared_mount=True)


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]", "local-cluster[2,1,1024]"])
def test_a_local_path_is_accepted_on_one_machine(master: str) -> None:
    check_reach("/lake/sales", LOCAL_FS, master, is_shared_mount=False)


@pytest.mark.parametrize(
    ("location", "default_fs"),
    [
        ("/lake/sales", HDFS),
        ("s3a://lake/sales", LOCAL_FS),
        ("abfss://c@a.dfs.core.windows.net/x", ""),
        ("hdfs:/lake", ""),
    ],
)
def test_a_store_is_accepted_on_a_cluster(location: str, default_fs: str) -> None:
    check_reach(location, default_fs, CLUSTERS[0], is_shared_mount=False)
