"""A memory in one minute: `python -m mnemolog.demo [FOLDER]`.

A store is made in a new folder, `demo-memory` if none is named, and what was asked and what came back is printed. With
the extra `minilm` the model changes on the way; without it that step says so, and all others are the same.
"""

import sys
from string import ascii_lowercase

from mnemolog import MemoryStore, errors
from mnemolog.defaults import DEFAULT_MODEL

ALICE = "acme/alice"
QUESTION = "Where do we live?"
MOVED = "We moved to Lisbon in March."


class Letters:
    """A model that fits on a page: it counts letters, so it does not know what a word means."""

    name, fingerprint = "letters", "letters/1"

    def encode(self, texts: list[str]) -> list[list[float]]:
        """Return how often each letter is in each text: 26 numbers a text."""
        return [[1.0 + text.lower().count(letter) for letter in ascii_lowercase] for text in texts]


def say(title: str, *lines: object) -> None:
    """Print a title, and below it what came back."""
    print(f"\n{title}", *lines, sep="\n  ")


def tell(store: MemoryStore) -> None:
    """Tell the story in an empty store."""
    spring = store.switch("spring", reason="new", agent="milo", scope=ALICE)
    lisbon = spring.record("user", MOVED, speaker="Alice", key="1")
    spring.record("user", "Our puppy hates the stairs of the new flat.", speaker="Alice", key="2")
    spring.record("user", "The tram to the office takes half an hour.", speaker="Alice", key="3")
    again = spring.record("user", MOVED, speaker="Alice", key="1")
    spring.assert_fact("user/city", "Lisbon", valid_from="2026-03", because=[lisbon])
    say(
        "1. Alice talks to the agent milo. A turn is on disk when the call returns, and a retry adds nothing.",
        f"event {lisbon.position}: {lisbon.text}",
        f"event {again.position} when the same call is made again",
    )

    bob = store.switch("bob", reason="new", agent="milo", scope="acme/bob")
    bob.record("user", "We moved too. The code of the door is 4410.", speaker="Bob")
    say(f"2. milo switches to Bob's session. {QUESTION}", *(hit.text for hit in bob.recall(QUESTION)))

    summer = store.switch("summer", reason="new", agent="milo", scope=ALICE)
    porto = summer.record("user", "We moved again, to Porto.", speaker="Alice")
    summer.assert_fact("user/city", "Porto", valid_from="2026-06", because=[porto])
    answer = store.recall(QUESTION, k=2, scope=ALICE, receipt=True)
    then = store.recall(QUESTION, k=2, scope=ALICE, as_of=lisbon.position)
    say(f"3. Back with Alice. {QUESTION}", *(hit.text for hit in answer))
    say(f"4. The same question as of event {lisbon.position}:", *(hit.text for hit in then))
    facts = store.fact_history("user/city", scope=ALICE)
    say(
        "5. A fact that changed: what held when, and from which turn that is known.",
        *(f"from {fact.valid_from:%B %Y} on {fact.value}, as event {fact.because[0]} says" for fact in facts),
    )

    pet = "Is there a dog?"
    before = store.recall(pet, k=1, scope=ALICE)
    try:
        added = store.models.add(DEFAULT_MODEL)
        store.models.activate(DEFAULT_MODEL)
        after = store.recall(pet, k=1, scope=ALICE)
        say(
            f"6. The model changes, and the log does not. {pet}",
            f"by a model that counts letters: {before[0].text}",
            f"by all-MiniLM-L6-v2, which has embedded {added.built_turns} turns: {after[0].text}",
        )
    except errors.ModelUnavailable as error:
        say("6. The model changes: not here.", error)

    receipt = store.audit.receipts().receipts[0]
    say(
        "7. Why did milo answer as in step 3? The answer left a receipt, which is repeated as of then.",
        f"event {receipt.position}: {receipt.query!r} showed events {receipt.turns}; repeated, it {receipt.verdict}",
    )

    report = store.forget(scope="acme/bob", reason="he asked for it")
    say(
        "8. Bob is forgotten: the keys of what he said are destroyed, and every index is purged.",
        f"forgotten events: {report.events}; turns with the code of his door: {len(store.find('4410'))}",
    )
    verified = store.verify()
    say(
        "9. The history still verifies: that something was forgotten is in it, what it was is not.",
        f"{verified.events} events, all as they were written: {verified.sound}",
    )


def main() -> None:
    """Make the store and tell the story; an error is one line, and exit status 1."""
    folder = (sys.argv[1:] or ["demo-memory"])[0]
    try:
        with MemoryStore.open(folder, model=Letters(), background=False) as store:
            tell(store)
    except errors.MnemologError as error:
        sys.exit(f"{error}; name a new folder: python -m mnemolog.demo FOLDER")
    say("Look at it, and go back in time:", f"mnemolog serve {folder}  # needs the extra `server`")


if __name__ == "__main__":
    main()
