"""Items: JSON objects by namespace and key, with expiry, filters and similarity, for any thread and session.

For frameworks with a document store for agents. Independent of frameworks: adapters convert items
(docs/adapters/README.md).
"""

from mnemolog.adapters.support.items.batch import Batch as Batch
from mnemolog.adapters.support.items.item import Item as Item
from mnemolog.adapters.support.items.item_store import Items as Items
from mnemolog.domain.item_filters import Pattern as Pattern

__all__ = ["Batch", "Item", "Items", "Pattern"]
