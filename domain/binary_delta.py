"""Binary deltas: new bytes as copies from a base, and the bytes between the copies.

Plan and copies are like those of RFC 3284 and git's packs. The search is made for serialised state: bytes are appended,
replaced or removed in a few places, and a count at the front changes.
"""

from typing import Final

from mnemolog.domain.values import BLOB_BYTES_MAX

COPY_BYTES_MIN: Final = 24
"""A shorter copy costs as much as its bytes."""
COPIES_MAX: Final = 64
NEAR_BYTES: Final = 32 << 10
"""How far to search first: most changes are small."""
SEARCHED_BYTES_MAX: Final = 16 << 20
"""How much may be searched without a match: beyond it the two differ too much for a delta to pay."""
_STEP: Final = 256


def splice(base: bytes, new: bytes) -> tuple[list[int], bytes]:
    """Return the plan that builds `new` from `base`, and the bytes that are not in the base.

    The plan comes in threes: how many of those bytes to take, then offset and length of the copy from the base that
    follows them. The work is bounded: for bytes that differ all over, there are few copies, or none.
    """
    plan: list[int] = []
    between: list[bytes] = []
    tail = _alike_backwards(base, len(base), new, len(new), most=min(len(base), len(new)))
    base_end, new_end = len(base) - tail, len(new) - tail
    at = 0
    done = 0
    place = 0
    searched = 0
    while place < new_end and len(plan) < 3 * COPIES_MAX:
        length = min(_alike(base, at, new, place), base_end - at, new_end - place)
        if length >= COPY_BYTES_MIN:
            between.append(new[done:place])
            plan += (place - done, at, length)
            at, place = at + length, place + length
            done = place
        found, more = _next_alike(base, at, base_end, new, place, new_end)
        searched += more
        if found is None or searched > SEARCHED_BYTES_MAX:
            break
        at, place = found
    between.append(new[done:new_end])
    if tail or new_end > done:
        plan += (new_end - done, base_end, tail)
    return plan, b"".join(between)


def spliced(base: bytes, plan: list[int], between: bytes) -> bytes:
    """Return the bytes that `splice` made the plan of.

    Raises `ValueError` for a plan that does not fit, or one of more than `BLOB_BYTES_MAX`: it may copy the base often.
    """
    if sum(plan[::3]) + sum(plan[2::3]) > BLOB_BYTES_MAX:
        raise ValueError("larger than any that is stored")
    parts: list[bytes] = []
    place = 0
    for taken, offset, length in zip(plan[::3], plan[1::3], plan[2::3], strict=True):
        if taken < 0 or offset < 0 or length < 0 or offset + length > len(base) or place + taken > len(between):
            raise ValueError("the plan reaches beyond the bytes")
        parts += (between[place : place + taken], base[offset : offset + length])
        place += taken
    return b"".join(parts)


def _next_alike(
    base: bytes, at: int, base_end: int, new: bytes, place: int, new_end: int
) -> tuple[tuple[int, int] | None, int]:
    """Return the next places where both are equal, and how many bytes were searched in vain.

    Bytes at growing distances in one are searched nearby in the other, to skip an insertion or a deletion. After a
    large insertion the next bytes of the base are searched everywhere.
    """
    base_near, new_near = min(base_end, at + NEAR_BYTES), min(new_end, place + NEAR_BYTES)
    step, searched = 0, 0
    while step <= NEAR_BYTES:
        start, found = at + step, -1
        if start + COPY_BYTES_MIN <= base_end:
            found = new.find(base[start : start + COPY_BYTES_MIN], place, new_near)
        if found < 0 and place + step + COPY_BYTES_MIN <= new_end:
            start, found = -1, place + step
            start = base.find(new[found : found + COPY_BYTES_MIN], at, base_near)
        if found >= 0 and start >= 0:
            back = _alike_backwards(base, start, new, found, most=min(start - at, found - place))
            return (start - back, found - back), searched
        searched += base_near - at + new_near - place
        step = step * 2 or 1
    if new_near < new_end and at + COPY_BYTES_MIN <= base_end:
        found = new.find(base[at : at + COPY_BYTES_MIN], new_near - COPY_BYTES_MIN, new_end)
        if found >= 0:
            return (at, found), searched
        searched += new_end - new_near
    return None, searched


def _alike(one: bytes, at: int, other: bytes, place: int) -> int:
    """Return how many bytes are equal from the given places on."""
    length, step = 0, _STEP
    limit = min(len(one) - at, len(other) - place)
    while length < limit:
        part = one[at + length : at + length + step]
        if part == other[place + length : place + length + step]:
            length, step = length + len(part), step * 2
        elif step == 1:
            break
        else:
            step = max(1, step // 8)
    return min(length, limit)


def _alike_backwards(one: bytes, end: int, other: bytes, other_end: int, *, most: int) -> int:
    """Return how many bytes, at most `most`, are equal before the given places."""
    length, step = 0, _STEP
    while length < most:
        some = min(step, most - length)
        if one[end - length - some : end - length] == other[other_end - length - some : other_end - length]:
            length, step = length + some, step * 2
        elif some == 1:
            break
        else:
            step = max(1, some // 8)
    return length
