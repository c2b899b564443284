"""Prefect blocks, parameters and events for the flows in `flows/`; needs `pip install 'lightmeter[flows]'`.

The entry point group `prefect.collections` names this package, so that Prefect registers its blocks.
"""

from lightmeter.prefect_integration.credentials import CredentialsBlock
from lightmeter.prefect_integration.storage import TableStorageBlock

__all__ = ["CredentialsBlock", "TableStorageBlock"]
