"""Fixtures of the tests of tables, which tests of remote stores use too."""

from tests.tables.conftest import add, s3

__all__ = ["add", "s3"]
