"""Keys as leaves of a binary tree, so that any of them can be destroyed while the others stay derivable.

The construction of Goldreich, Goldwasser and Micali ("How to construct random functions", 1986): a node's two children
are the halves of its hash, the leaf of a number is reached by its bits. A node gives every leaf below it and
no other. To destroy leaves, the nodes above them are replaced by the nodes beside (a puncturable pseudorandom function:
Boneh and Waters, 2013): at most `DEPTH` nodes for one leaf, twice as many for a range, whatever the number of leaves.
"""

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Final, NamedTuple

DEPTH: Final = 32
"""Levels below the root: leaves are numbered from 0 to 2**32 - 1."""
LEAF_MAX: Final = (1 << DEPTH) - 1
KEY_BYTES: Final = 32
TOGETHER_BITS: Final = 5
TOGETHER: Final = 1 << TOGETHER_BITS
"""Leaves that are derived together."""

_EXPANDING: Final = blake2b(digest_size=2 * KEY_BYTES, person=b"mnemolog/node/1")
"""The state of the hash before anything went into it: to copy it costs less than to set it up again."""


class Node(NamedTuple):
    """A node that is known, and with it every leaf below."""

    depth: int
    """0 at the root."""
    prefix: int
    """The first `depth` bits of the numbers of its leaves."""
    material: bytes

    @property
    def first(self) -> int:
        """The number of its first leaf."""
        return self.prefix << (DEPTH - self.depth)

    @property
    def last(self) -> int:
        """The number of its last leaf."""
        return self.first + (1 << (DEPTH - self.depth)) - 1

    def children(self) -> "tuple[Node, Node]":
        """Return the two nodes below it."""
        made = _expanded(self.material)
        depth, prefix = self.depth + 1, self.prefix << 1
        return Node(depth, prefix, made[:KEY_BYTES]), Node(depth, prefix + 1, made[KEY_BYTES:])


def without(nodes: Iterable[Node], first: int, last: int) -> Iterator[Node]:
    """Yield what is left of `nodes` when the leaves from `first` to `last`, both included, are destroyed."""
    for node in nodes:
        if node.last < first or last < node.first:
            yield node
        elif not (first <= node.first and node.last <= last):
            yield from without(node.children(), first, last)


def leaves_near(node: Node, leaf: int) -> dict[int, bytes]:
    """Return the keys of a leaf below `node` and of those beside it, by number: at most `TOGETHER`, aligned.

    Leaves are usually needed in order. Derived together, each costs about one hash.
    """
    depth, made = node.depth, [node.material]
    while depth < DEPTH - TOGETHER_BITS:
        depth += 1
        half = leaf >> (DEPTH - depth) & 1
        made = [_expanded(made[0])[half * KEY_BYTES : (half + 1) * KEY_BYTES]]
    first = leaf >> (DEPTH - depth) << (DEPTH - depth)
    for _ in range(DEPTH - depth):
        halves = [_expanded(material) for material in made]
        made = [part for both in halves for part in (both[:KEY_BYTES], both[KEY_BYTES:])]
    return dict(enumerate(made, first))


def _expanded(material: bytes) -> bytes:
    expanding = _EXPANDING.copy()
    expanding.update(material)
    return expanding.digest()
