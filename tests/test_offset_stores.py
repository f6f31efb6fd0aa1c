"""The stores of offsets that need no Airflow. tests/airflow/test_variable.py has the one on Variables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.offset_request_contract import RequestContract, UnlockedStoreContract
from support.offset_store_contract import OffsetStoreContract

from airflow_provider_db2cdc.offsets.file import FileOffsetStore
from airflow_provider_db2cdc.offsets.keyed import KeyedOffsetStore, MemoryTexts


class TestMemory(OffsetStoreContract, RequestContract, UnlockedStoreContract):
    @pytest.fixture
    def store(self) -> KeyedOffsetStore:
        return KeyedOffsetStore(MemoryTexts())

    @pytest.fixture
    def again(self, store: KeyedOffsetStore) -> Callable[[], KeyedOffsetStore]:
        return lambda: KeyedOffsetStore(store.texts)


class TestFiles(OffsetStoreContract, RequestContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> KeyedOffsetStore:
        return FileOffsetStore(tmp_path / "_db2cdc" / "offsets.json")

    @pytest.fixture
    def again(self, tmp_path: Path) -> Callable[[], KeyedOffsetStore]:
        return lambda: FileOffsetStore(tmp_path / "_db2cdc" / "offsets.json")
