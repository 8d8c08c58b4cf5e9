from bide.client import Client as Client
from bide.client import SyncClient as SyncClient

__version__: str
