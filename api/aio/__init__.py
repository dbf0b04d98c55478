"""The store for asyncio: the surface of `mnemolog.store`, done in threads of the store's own (docs/async.md)."""
