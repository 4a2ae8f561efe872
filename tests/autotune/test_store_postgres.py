import pytest

from tests.autotune.sql_store_contract import SqlStoreContract


class TestPostgresStore(SqlStoreContract):
    @pytest.fixture
    def url(self, postgres_schema):
        return postgres_schema
