"""The one bounded cache: what was used longest ago goes first."""

from mnemolog.infra.runtime.lru_cache import LruCache


def test_what_was_used_longest_ago_goes_first():
    """Reading a value counts as using it, and so does putting it again."""
    cache = LruCache[str, int](2)
    cache.put("a", 1)
    cache.put("b", 2)
    assert cache.get("a") == 1
    cache.put("c", 3)
    assert cache.get("b") is None
    assert [cache.get(key) for key in "ac"] == [1, 3]
    cache.put("a", 4)
    cache.put("d", 5)
    assert [cache.get(key) for key in "abcd"] == [4, None, None, 5]


def test_values_may_count_by_their_size():
    """One that is too large by itself is not kept, and a replaced one counts no more."""
    cache = LruCache[str, bytes](4, size_of=len)
    cache.put("a", b"123")
    cache.put("a", b"12")
    cache.put("b", b"12")
    assert [cache.get(key) for key in "ab"] == [b"12", b"12"]
    cache.put("c", b"12345")
    assert [cache.get(key) for key in "abc"] == [None, None, None]
    cache.put("d", b"1234")
    assert cache.get("d") == b"1234"
    cache.clear()
    assert cache.get("d") is None
