"""Items: JSON objects by namespace and key, with expiry, filters and similarity, for any thread and session.

For frameworks that keep what agents know in a store of documents. No framework is known here. Adapters hand them over
(docs/adapters/README.md).
"""

from mnemolog.domain.matching import Pattern as Pattern
from mnemolog.items.batch import Batch as Batch
from mnemolog.items.item import Item as Item
from mnemolog.items.items import Items as Items

__all__ = ["Batch", "Item", "Items", "Pattern"]
