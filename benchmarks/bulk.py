"""Stores of any number of turns from real messages: chat rooms that live long, and short dialogs between them.

A source is JSON Lines {conversation, turn_id, speaker, text[, time]}, gzipped (`bulk/gitter.jsonl.gz` and
`bulk/sgd.jsonl.gz` of the data). A conversation with times is a room: its messages lie everywhere on the timeline.
One without is a dialog, whose messages lie close together. So the first N messages are the same mixture for every N.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from mnemolog import MemoryStore, NewTurn
from mnemolog.projections.ports import Progress

QUESTIONS: Final = 200
QUESTION_LENGTH_MIN, LENGTH_MAX = 20, 20_000
DIALOG_STEP: Final = 8
"""Messages from one of a dialog to the next, with those of other conversations between them."""
SHARES: Final = {"one": (1, 1), "ten": (10, 10), "forty": (40, 40), "rest": (49, 49)}
"""Scopes at the top: percent of the turns, and the number of scopes below it that hold them."""
TOGETHER: Final = 5_000
SPEAKER_OF_A_ROLE: Final = frozenset({"user", "assistant"})


class Message(NamedTuple):
    """A message of a source. `at` is where it lies on the timeline, from 0 to 1."""

    at: float
    conversation: str
    key: str
    speaker: str
    text: str
    time: datetime | None


class Bulk:
    """The messages of sources in the order of a timeline, without those that are kept for questions."""

    def __init__(self, sources: Sequence[Path], *, questions: int = QUESTIONS) -> None:
        messages = sorted(placed(sources))
        telling = [message for message in messages if QUESTION_LENGTH_MIN <= len(message.text) <= 500]
        if len(telling) < 2 * questions:
            raise ValueError(
                f"the data has {len(telling):,} messages that could be questions; {2 * questions} are needed"
            )
        kept = telling[:: len(telling) // questions][:questions]
        left_out = set(map(id, kept))
        self.questions = [message.text for message in kept]
        self.messages = [message for message in messages if id(message) not in left_out]
        times = [message.time for message in self.messages if message.time is not None]
        self.span = (
            (min(times), max(times)) if times else (datetime(2015, 1, 1, tzinfo=UTC), datetime(2016, 1, 1, tzinfo=UTC))
        )
        """When the first and the last message was said."""
        self.scopes = scopes_of(self.messages)

    def turns(self, count: int, *, after: int = 0) -> Iterator[tuple[str, str, NewTurn]]:
        """Yield session, scope and turn of the first `count` messages, without the first `after`.

        When all messages are used they come again: in other sessions, each turn with a word of its session behind it.
        """
        first, last = self.span
        for number in range(after, count):
            again, place = divmod(number, len(self.messages))
            message = self.messages[place]
            session, text = message.conversation, message.text
            if again:
                session = f"{session}~{again}"
                text = f"{text} {word_of(session)}"
            said_at = message.time or first + message.at * (last - first)
            is_role = message.speaker in SPEAKER_OF_A_ROLE
            turn = NewTurn(
                session=session,
                role=message.speaker if is_role else "user",
                text=text,
                speaker=None if is_role else message.speaker,
                key=message.key,
                said_at=said_at + again * (last - first + timedelta(days=1)),
            )
            yield session, self.scopes[message.conversation], turn

    def most_frequent_speaker(self, count: int) -> str:
        """Return who said most of the first `count` messages, of those who have a name."""
        named = Counter(message.speaker for message in self.messages[:count])
        return max(named.keys() - SPEAKER_OF_A_ROLE, key=lambda name: (named[name], name))


def placed(sources: Sequence[Path]) -> Iterator[Message]:
    """Yield the messages of sources with their places on the timeline. A message that is there twice comes once."""
    conversations: dict[str, dict[str, dict[str, Any]]] = {}
    for source in sources:
        with gzip.open(source, "rt", encoding="utf-8") as lines:
            for line in lines:
                message = json.loads(line)
                if (message.get("text") or "").strip():
                    conversations.setdefault(message["conversation"], {})[str(message["turn_id"])] = message
    total = sum(map(len, conversations.values()))
    for name, messages in conversations.items():
        start, count = zlib.crc32(name.encode()) / 2**32, len(messages)
        is_room = any("time" in message for message in messages.values())
        for number, (key, message) in enumerate(messages.items()):
            at = (number + start) / count if is_room else start * (1 - DIALOG_STEP * count / total)
            yield Message(
                at if is_room else at + number * DIALOG_STEP / total,
                name,
                key,
                message["speaker"],
                message["text"][:LENGTH_MAX],
                datetime.fromisoformat(message["time"]) if is_room else None,
            )


def scopes_of(messages: Sequence[Message]) -> dict[str, str]:
    """Return the scope of each conversation, such that the scopes have the shares of `SHARES`.

    The largest conversation comes first, and each goes where most is missing. Rooms and dialogs are divided separately.
    """
    sizes: dict[bool, dict[str, int]] = {True: {}, False: {}}
    for message in messages:
        of_kind = sizes[message.time is not None]
        of_kind[message.conversation] = of_kind.get(message.conversation, 0) + 1
    scopes: dict[str, str] = {}
    for of_kind in sizes.values():
        total = sum(of_kind.values())
        missing = {name: total * percent / 100 for name, (percent, _) in SHARES.items()}
        below = {name: [0] * parts for name, (_, parts) in SHARES.items()}
        for conversation, size in sorted(of_kind.items(), key=lambda item: (-item[1], item[0])):
            name = max(missing, key=lambda name: missing[name])
            missing[name] -= size
            part = below[name].index(min(below[name]))
            below[name][part] += size
            scopes[conversation] = f"{name}/{part:02}"
    return scopes


def word_of(session: str) -> str:
    """Return a word that is only in the texts of one session."""
    return f"z{zlib.crc32(session.encode()):x}"


def record(store: MemoryStore, bulk: Bulk, count: int, *, progress: Progress) -> None:
    """Record the first `count` turns, as far as they are not there."""
    there = sum(scope.turns for scope in store.scopes())
    started = {item.session for item in store.sessions()}
    turns = bulk.turns(count, after=there)
    while some := list(islice(turns, TOGETHER)):
        for session, scope, _ in some:
            if session not in started:
                store.start_session(session, scope=scope, agent="bench")
                started.add(session)
        store.record_many([turn for _, _, turn in some])
        there += len(some)
        progress(there, count)
