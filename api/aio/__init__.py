"""The store for asyncio: the API of `mnemolog.store`, run in the store's own threads (docs/async.md)."""
