"""Prefect blocks, parameters and events for the flows in `flows/`; needs `pip install 'lightmeter[flows]'`.

This package is an entry point of the group `prefect.collections`, so that Prefect registers its blocks.
"""

from lightmeter.prefect_integration.credentials import CredentialsBlock
from lightmeter.prefect_integration.storage import TableStorageBlock

__all__ = ["CredentialsBlock", "TableStorageBlock"]
