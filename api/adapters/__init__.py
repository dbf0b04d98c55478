"""What other frameworks use a store by. Each is an extra; the library itself imports none of them."""
