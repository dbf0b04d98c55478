"""What is recalled, against a search that looks at every turn."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from mnemolog import Hit, Recall
from mnemolog.audit.receipt_audit import Verdict
from mnemolog.domain import errors
from mnemolog.projections.context.packing import estimated_tokens
from tests.faults.simulation.model import Said
from tests.faults.simulation.world import EVERY_TURN_IN, EVERYTHING, SCOPES, VOCABULARY, Mismatch, World, agree
from tests.support import as_stored, projections_of

MODES = ("text", "vector", "hybrid")
UNEMBEDDED_MAX = 64
"""A recall embeds so many texts itself; behind more of them the vectors may lag, and say so."""


class Asked(NamedTuple):
    """A recall, and the turns that it is to choose from."""

    ask: Callable[..., Recall]
    among: list[Said]
    options: dict[str, Any]


class Questions(World):
    """Steps that recall and find."""

    def recall(self, how: int, whom: int, what: int, when: int) -> str | None:
        """In one of the modes, of one of the subjects, one or two words; every fourth time as of the past."""
        mode = MODES[how % len(MODES)] if self.with_models else "text"
        query = " ".join(sorted({VOCABULARY[what % 10], VOCABULARY[what // 10 % 10]}))
        earlier = self.model.head - self.model.adopted
        as_of = self.model.adopted + 1 + when // 4 % earlier if when % 4 == 0 and earlier else None
        asked = self._subject(whom, as_of=as_of)
        if asked is None:
            return None
        limit = 3 if what % 7 == 0 else EVERYTHING
        every = {"asked": "keep", "min_relevance": 0}
        options = {"k": limit, "mode": mode, **every, **asked.options, **({} if as_of is None else {"as_of": as_of})}
        self.check_recall(lambda: asked.ask(query, **options), asked.among, options, query)
        return None

    def receipt(self, how: int, _whom: int, what: int, *_: int) -> None:
        """A recall that leaves a receipt in the log; the end of every script asks them all again."""
        query = VOCABULARY[what % 10]
        mode = MODES[how % len(MODES)] if self.with_models else "text"
        answer = self.append(lambda: self.store.recall(query, k=10, mode=mode, receipt=True), self.model.noticed)
        self.receipts.append((answer.receipt, [hit.position for hit in answer]))

    def judge(self, how: int, _whom: int, what: int, *_: int) -> None:
        """One of the receipts: half of its hits good and the others bad, or nothing. The last judgement counts."""
        if not self.receipts:
            return
        receipt, hits = self.receipts[what % len(self.receipts)]
        left = [position for position in hits if position not in self.model.forgotten]
        good = sorted(left[::2]) if how % 3 else []
        bad = sorted(set(hits) - set(good))

        def judged() -> None:
            self.model.noticed()
            self.judged[receipt] = good, bad, not good

        self.append(lambda: self.store.audit.judge(receipt, good=good, bad=bad, nothing=not good), judged)

    def context(self, how: int, whom: int, what: int, when: int) -> None:
        """For the store or a session, now or as of the past: within its budget, of turns that are seen, each once."""
        mode, query = MODES[how % len(MODES)] if self.with_models else "text", VOCABULARY[what % 10]
        budget = (0, 30, 200, 2_000)[what // 10 % 4]
        earlier = self.model.head - self.model.adopted
        as_of = self.model.adopted + 1 + when // 4 % earlier if when % 4 == 0 and earlier else None
        position = self.model.head if as_of is None else as_of
        among, ask = self.model.turns_at(position), self.store.context
        if whom % 2 and self.model.sessions:
            now, session = self.pick(whom // 2)
            then = self.model.past[position].sessions.get(now.name)
            if then is None:
                self.refused(errors.OutsideSession, lambda: session.context(query, as_of=as_of))
                return
            among, ask = list(then.visible), partial(session.context, lineage=True)
        found = self.attempt(lambda: ask(query, budget, as_of=as_of, mode=mode, min_relevance=0.0))
        if found.tokens > budget or found.tokens != estimated_tokens(found.text):
            raise Mismatch(f"context({query!r}, {budget}): {found.tokens} tokens of {found.text!r}")
        shown = [passage for block in found for passage in block.passages]
        agree(len({item.position for item in shown}), len(shown), "turns of a context, each once")
        texts = {said.position: said.text for said in among}
        agree(
            {item.position: texts.get(item.position, "")[item.start : item.end] for item in shown},
            {item.position: item.text for item in shown},
            "texts of a context",
        )

    def find(self, how: int, _whom: int, what: int, *_: int) -> None:
        """The turns that hold a piece of a word, in order; every other time those that are hidden as well."""
        piece, hidden = VOCABULARY[what % 10][1:], how % 2 == 1
        found = self.attempt(lambda: self.store.find(piece.upper(), hidden=hidden, limit=EVERYTHING))
        expected = [
            (said.position, said.text)
            for said in self.model.turns_at(self.model.head)
            if piece in said.text and (hidden or said in self.model.sessions[said.session].visible)
        ]
        agree([(turn.position, turn.text) for turn in found], expected, f"find({piece!r}, hidden={hidden})")

    def _subject(self, whom: int, *, as_of: int | None) -> Asked | None:
        """Everything, a scope, a session's own turns, what a session sees, or that with what is hidden from it."""
        position = self.model.head if as_of is None else as_of
        moment, turns = self.model.past[position], self.model.turns_at(position)
        subject, which = whom % 5, whom // 5
        if subject == 0 or not self.model.sessions:
            return Asked(self.store.recall, turns, {})
        if subject == 1:
            scope = SCOPES[which % len(SCOPES)]
            within = {name for name, then in moment.sessions.items() if scope in ("", then.scope, *above(then.scope))}
            return Asked(self.store.recall, [said for said in turns if said.session in within], {"scope": scope})
        now, session = self.pick(which)
        then = moment.sessions.get(now.name)
        if then is None:
            self.refused(errors.OutsideSession, lambda: session.recall("amber", as_of=as_of))
            return None
        if subject == 2:
            own = [said for said in turns if said.session == then.name]
            return Asked(self.store.recall, own, {"session": then.name})
        if subject == 3:
            return Asked(session.recall, list(then.visible), {"lineage": True})
        return Asked(session.recall, list(then.ever), {"lineage": True, "hidden": True})

    def check_recall(self, call: Callable[[], Recall], among: list[Said], options: dict[str, Any], query: str) -> None:
        """Compare an answer with a look at all turns that it may come from."""
        found = self.attempt(call)
        if found.unavailable_legs or found.vectors_lag:
            found = self.attempt(lambda: self.doctored(call, found))
        what = f"recall({query!r}, {options})"
        mode, limit, position = options["mode"], options["k"], options.get("as_of", self.model.head)
        agree(found.head, position, f"head of {what}")
        words = set(query.split())
        if mode != "text":
            model = self.model.past[position].model or 0
            self._check_legs(found, what, mode=mode, position=position)
            self._check_similarities(found, among, query, model, what, vectors_only=mode == "vector", limit=limit)
        else:
            agree(found.legs, ("text",), f"legs of {what}")
            among = [said for said in among if words & set(said.text.split())]
        hits = {hit.position: hit.text for hit in found.hits}
        if len(hits) != len(found.hits):
            raise Mismatch(f"{what}: a turn twice in {found.hits}")
        expected = {said.position: said.text for said in among}
        if limit == EVERYTHING and (mode == "text" or found.vectors_cover == position):
            agree(sorted(hits.items()), sorted(expected.items()), f"hits of {what}")
        elif not hits.items() <= expected.items():
            raise Mismatch(f"{what}: {hits.items() - expected.items()} is not to be found")
        if mode == "text":
            agree(len(hits), min(limit, len(expected)), f"number of hits of {what}")

    def _check_legs(self, found: Recall, what: str, *, mode: str, position: int) -> None:
        """Which legs answered, with which model, and how far the vectors went."""
        if self.failing is not None and self.failing.happened:
            return  # A leg that the disk has hindered says so; what it says is compared all the same.
        if found.unavailable_legs:
            raise Mismatch(f"{what}: {found.unavailable_legs} without a fault")
        agree(found.legs, ("vector",) if mode == "vector" else ("text", "vector"), f"legs of {what}")
        model = self.model.past[position].model or 0
        fingerprint = projections_of(self.store).models.opened(self.encoders[model]).fingerprint
        agree(found.model, fingerprint, f"model of {what}")
        if found.vectors_cover != position and self.model.past[position].turns <= UNEMBEDDED_MAX:
            raise Mismatch(f"{what}: the vectors go to {found.vectors_cover}: {found.vectors_lag}")

    def _check_similarities(
        self, found: Recall, among: list[Said], query: str, model: int, what: str, *, vectors_only: bool, limit: int
    ) -> None:
        """Each similarity is that of the turn; in `vector` mode they are the best, in their order."""
        if "vector" not in found.legs:
            return
        asked = self.vector(model, query)
        for hit in found.hits:
            expected = (
                None if hit.similarity is None else float(as_stored(self.vector(model, hit.text)[None])[0] @ asked)
            )
            if expected is not None and abs(hit.similarity - expected) > EVERY_TURN_IN:  # type: ignore[operator]
                raise Mismatch(f"{what}: similarity {hit.similarity} of {hit.text!r}, the model has {expected}")
        if not vectors_only:
            return
        agree(list(found.hits), sorted(found.hits, key=by_similarity), f"order of {what}")
        if found.vectors_cover == found.head and among:
            scores = np.sort(as_stored(np.stack([self.vector(model, said.text) for said in among])) @ asked)[::-1][
                :limit
            ]
            agree(len(found.hits), len(scores), f"number of hits of {what}")
            similar = [hit.similarity for hit in found.hits]
            if not np.allclose(similar, scores, atol=EVERY_TURN_IN):
                raise Mismatch(f"{what}: similarities {similar}, the model has {scores.tolist()}")

    def check_receipts(self) -> None:
        """Ask every receipt again: each answer is what it was."""
        if self.suspect:  # A leg that damage keeps from answering leaves a receipt untold: the doctor comes first.
            self.store.admin.doctor(deep=True, fix=True)
        audit = self.store.audit.receipts(after=self.model.adopted, limit=EVERYTHING)
        may = {Verdict.REPRODUCES, Verdict.UNKNOWN} if self.model.forgotten else {Verdict.REPRODUCES}
        doubtful = [item for item in audit.receipts if item.verdict not in may]
        agree(doubtful, [], "receipts that do not reproduce")
        last = {item.receipt: item for item in self.store.audit.judgements() if item.receipt > self.model.adopted}
        found = {receipt: ([*item.good], [*item.bad], item.nothing) for receipt, item in last.items()}
        agree(found, self.judged, "judgements")
        lost = {receipt for receipt, (good, *_) in self.judged.items() if {*good} & self.model.forgotten} | (
            self.unanswerable & self.judged.keys()
        )
        agree({receipt for receipt, item in last.items() if item.unusable}, lost, "judgements whose answers are gone")


def above(scope: str) -> list[str]:
    """The scopes that hold this one, but for the root."""
    parts = scope.split("/")
    return ["/".join(parts[:n]) for n in range(1, len(parts))]


def by_similarity(hit: Hit) -> tuple[float, int]:
    """Best first, then the earlier one."""
    return -(hit.similarity or 0.0), hit.position
