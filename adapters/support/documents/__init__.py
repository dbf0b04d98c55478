"""Items: JSON objects by namespace and key, with expiry, filters and similarity, for any thread and session.

For frameworks that keep what agents know in a store of documents. No framework is known here. Adapters hand them over
(docs/adapters/README.md).
"""

from mnemolog.adapters.support.documents.batch import Batch as Batch
from mnemolog.adapters.support.documents.item import Item as Item
from mnemolog.adapters.support.documents.items import Items as Items
from mnemolog.domain.matching import Pattern as Pattern

__all__ = ["Batch", "Item", "Items", "Pattern"]
