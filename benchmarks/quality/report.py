"""A run as a page, and on the terminal. Every sentence with a figure is made from the figures."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from rich import box
from rich.console import Console
from rich.table import Table as RichTable

from benchmarks.quality import tables
from benchmarks.quality.ablation import SHIPPED
from benchmarks.quality.left_out import OURS
from benchmarks.quality.results import LEVELS, DatasetResult, Results
from benchmarks.quality.runner import PACKED_MAX
from benchmarks.quality.tables import Table
from benchmarks.quality.targets import verdicts

HARD: Final = 0.8
"""A category is hard where less of its evidence is among the first ten."""
LINE_CHARACTERS: Final = 118
HARD_QUESTIONS_MIN: Final = 5
MEASURES: Final = """\
A question searches the conversation it belongs to. **hit@k**: a turn with evidence is among the first k. **evidence
recall@10**: the share of all evidence that is among the first ten. **NDCG@10** (Järvelin and Kekäläinen, 2002)
compares with the ideal order: all evidence first, found or not. **By session**: sessions are ranked by their first
turn among {depth} turns. **AUROC**: how often a number is higher for one kind of question than for another; 1 is
always, 0.5 is chance. In brackets: 95 % intervals by bootstrap (Efron, 1979; percentiles of {resamples:,} resamples
of the questions, seed {seed}). They show the effect of other questions, not of other conversations.

**left out**: the weights of the ranking were fitted without this set and those that share conversations with it. That
is what to expect on conversations that nothing was fitted to. **shipped**: the weights that a user gets; they
have seen all sets, so these figures are a little too good."""
LEGS: Final = """\
NDCG@10 as LMEB has it (a benchmark of encoders for memories, in MTEB): the candidates are the turns of the question's
own conversation, and the figure of a set is the mean over its questions, or of the means of its categories. LoCoMo's
adversarial questions are not asked. "both" has weights that have not seen the set; those of "text only" have, and
"vector only" has none."""
BAD_AT: Final = """\
- **It does not know that it knows nothing.** A question about the conversation that nothing answers gets hits as
  relevant as a question with an answer. Only a reader of the hits can tell.
- **It finds turns, not answers.** It does not count, compare or put in order. A question such as "how many times" or
  "what was first" needs all turns that it is about, and a reader who adds them up.
- **It does not know what holds now.** When a fact has changed, the old and the new statement are both relevant. The
  newer one comes first where its words tell of a change; else a pointer leads to it.
- **Short turns without their words.** "Yes, the second one" has none of the words of its question. The words of the
  turns around it help; its vector does not.
- **Questions about everything.** A summary of a meeting rests on dozens of turns. Ten hits cannot hold them.
- **Other languages.** All sets are English, and so are the model and the patterns that read a question."""
SETS: Final = {
    "locomo-dev": "friends who chat over months (LoCoMo, five conversations; CC BY-NC 4.0)",
    "assistant-dev": "people and an assistant, on many subjects, with questions written for this project",
    "longmemeval-pool": "people and an assistant: evidence of LongMemEval as short sessions among sessions of others",
    "longmemeval-mini": "people and an assistant: haystacks of LongMemEval",
    "qmsum-dev": "real meetings; the evidence is a span of dozens of turns (QMSum)",
    "project": "a long conversation of a user and an assistant about one software project, written for this project",
}


OWN: Final = "a conversation that was written for this project"


def as_page(results: Results, *, plots: bool) -> str:
    """Return the page. With `plots` it shows the pictures that `benchmarks.quality.plot` draws beside it."""
    sections = (
        _answer(results.datasets),
        _categories(results.datasets),
        _calibration(results.datasets),
        _nothing(results.datasets),
        _budgets(results.datasets),
        _ablation(results.datasets),
        _times(results.datasets),
        _bad_at(results.datasets),
        _sets(results.datasets),
    )
    lines = [
        "# Quality of recall",
        "",
        "How often recall finds the turns that answer a question, on conversations of several kinds. "
        "Written by `make bench-recall`, which is",
        "",
        f"    {results.command}",
        "",
        f"Model {results.model}, {_reranker(results)}. {results.machine}. All figures: "
        "[recall-quality.json](recall-quality.json).",
        "",
        MEASURES.format(depth=results.depth, resamples=results.resamples, seed=results.seed),
    ]
    for section in sections:
        shown = [line for line in section if plots or not line.startswith("![")]
        lines += ["", "\n\n".join(map(_filled, shown))] if shown else []
    return "\n".join(lines) + "\n"


def _answer(datasets: Sequence[DatasetResult]) -> Iterator[str]:
    yield "## Does it find the answer?"
    first = [dataset.settings[0].levels["turn"].overall.metrics for dataset in datasets]
    ten, one = (_between(metrics[f"hit@{cut}"].mean for metrics in first) for cut in (10, 1))
    weights = datasets[0].settings[0].name
    yield (
        f"A turn with evidence is among the first ten hits for {ten} of the questions, and is the first hit for {one}, "
        f"depending on the set (weights: {weights})."
    )
    yield "![hits by set](recall-sets.svg)"
    yield tables.overall(datasets, "turn").as_markdown()
    several = [dataset for dataset in datasets if dataset.sessions > dataset.conversations]
    yield tables.overall(several, "session").as_markdown()
    if any(dataset.setting("vector only") is not None for dataset in datasets):
        table = tables.legs(datasets)
        yield Table(table.title, table.columns, table.rows, LEGS).as_markdown()
    if (wanted := tables.targets(datasets)) is not None:
        met = [verdict.holds for dataset in datasets for verdict in verdicts(dataset)]
        yield Table(wanted.title, wanted.columns, wanted.rows, f"{sum(met)} of {len(met)} hold.").as_markdown()


def _categories(datasets: Sequence[DatasetResult]) -> Iterator[str]:
    found = [table for dataset in datasets for table in tables.categories(dataset)]
    if not found:
        return
    yield "## Which questions are hard?"
    hard = list(_hard(datasets))
    if hard:
        yield f"Least of the evidence is among the first ten hits for {'; '.join(hard)}."
    else:
        yield f"In every category at least {_between([HARD])} of the evidence is among the first ten."
    yield "![evidence recall by category](recall-categories.svg)"
    yield from (table.as_markdown() for table in found)


def _calibration(datasets: Sequence[DatasetResult]) -> Iterator[str]:
    yield "## Does the relevance mean something?"
    off = _between((dataset.relevance.calibration_error for dataset in datasets), ".2f")
    yield (
        "If relevance were the chance that a hit is evidence, seven of ten hits with relevance 0.7 would be. On "
        f"average it is off by {off}, depending on the set. The sets cite a fact once or twice, so a hit that repeats "
        "it counts as wrong."
    )
    yield "![relevance and share of evidence](recall-calibration.svg)"
    yield tables.calibration(datasets).as_markdown()


def _nothing(datasets: Sequence[DatasetResult]) -> Iterator[str]:
    yield "## Does it notice a question that nothing answers?"
    off = [dataset.relevance.off_topic.mean for dataset in datasets if dataset.relevance.off_topic is not None]
    near = [dataset.relevance.near_miss.mean for dataset in datasets if dataset.relevance.near_miss is not None]
    if off:
        yield (
            "**Off-topic** questions were written for conversations of other sources. Their best hit is less relevant "
            f"than that of a question with an answer in {_between(off, '.2f')} of the pairs."
        )
    if near:
        yield (
            "**Unanswerable** questions are about the conversation itself, but nothing in it answers them. Here it is "
            f"{_between(near, '.2f')}: the hits have the words of the question, and it takes a reader to see "
            "that the answer is missing."
        )
    yield "![relevance of the best hit](recall-off-topic.svg)"
    yield tables.told_apart(datasets).as_markdown()
    yield (
        "What `min_relevance` leaves of the evidence among the first ten, and how many questions without an answer "
        "still get a hit:"
    )
    yield from (tables.thresholds(dataset).as_markdown() for dataset in datasets)


def _budgets(datasets: Sequence[DatasetResult]) -> Iterator[str]:
    table = tables.budgets(datasets)
    if not table.rows:
        return
    yield "## Does the answer fit into a prompt?"
    most = max(item.tokens for dataset in datasets for item in dataset.budgets)
    words = _between(item.words.mean for dataset in datasets for item in dataset.budgets if item.tokens == most)
    yield (
        f"A context of {most:,} tokens holds {words} of the answer's words, depending on the set. The evidence "
        "counts as shown if any part of the turn is shown; the words tell whether it was the right part. Measured on "
        f"up to {PACKED_MAX} questions of a set."
    )
    yield "![what a context holds](recall-budget.svg)"
    yield table.as_markdown()


def _ablation(datasets: Sequence[DatasetResult]) -> Iterator[str]:
    if not any(setting.name not in tables.WHOLE for dataset in datasets for setting in dataset.settings):
        return
    yield "## What does each part bring?"
    yield (
        f'Each setting minus "{SHIPPED}", paired by question. In bold where the interval leaves out 0. Below 0: recall '
        "is worse without that part."
    )
    yield "![ablation](recall-ablation.svg)"
    yield from (tables.ablation(dataset).as_markdown() for dataset in datasets)


def _times(datasets: Sequence[DatasetResult]) -> Iterator[str]:
    yield "## How long does it take?"
    found = [setting.times for dataset in datasets if (setting := dataset.setting(SHIPPED)) is not None]
    recall = _between((item.recall_p50_ms for item in found), ".0f")
    model = [item.model_p50_ms for item in found if item.model_p50_ms is not None]
    beside = f" To embed the question, the model takes {max(model):.0f} ms or less besides." if model else ""
    yield f"Half of the recalls of ten turns take {recall} ms or less, depending on the set.{beside}"
    yield "![time of a recall](recall-times.svg)"
    yield tables.times(datasets).as_markdown()
    yield (
        "What the model read to embed the sets, in whichever run. A text said twice is read once, a long one in "
        "overlapping pieces."
    )
    yield tables.costs(datasets).as_markdown()


def _bad_at(datasets: Sequence[DatasetResult]) -> Iterator[str]:
    yield "## What recall is bad at"
    hard = "; ".join(_hard(datasets))
    yield f"It finds least of the evidence for {hard}. Beyond that:" if hard else "What no figure above shows:"
    yield BAD_AT


def _sets(datasets: Sequence[DatasetResult]) -> Iterator[str]:
    yield "## The sets"
    for dataset in datasets:
        yield (
            f"**{dataset.name}**: {SETS.get(dataset.name, OWN if dataset.source == OURS else dataset.shape)}.\n"
            + "\n".join(about(dataset))
        )


def _hard(datasets: Sequence[DatasetResult]) -> Iterator[str]:
    """Yield the categories of which least is found, the worst first."""
    found = [
        (figures.metrics["evidence recall@10"].mean, name, dataset.name)
        for dataset in datasets
        for name, figures in dataset.settings[0].levels["turn"].categories.items()
        if figures.questions >= HARD_QUESTIONS_MIN and len(dataset.settings[0].levels["turn"].categories) > 1
    ]
    found += [
        (dataset.settings[0].levels["turn"].overall.metrics["evidence recall@10"].mean, "all questions", dataset.name)
        for dataset in datasets
        if len(dataset.settings[0].levels["turn"].categories) == 1
    ]
    for mean, name, dataset in sorted(found):
        if mean < HARD:
            yield f"{name} of {dataset} ({_between([mean])})"


def about(dataset: DatasetResult) -> Iterator[str]:
    """Yield what is in a data set and what of it is not asked."""
    yield (
        f"{dataset.turns:,} turns in {dataset.sessions:,} sessions of {dataset.conversations:,} conversations, "
        f"{dataset.questions:,} questions. Left out:"
    )
    yield ""
    for level in LEVELS:
        reasons = dataset.left_out[level]
        said = ", ".join(f"{count} {reason}" for reason, count in reasons.items()) or "none"
        asked = dataset.questions - sum(reasons.values())
        yield f"- {level} level: {said}; {asked} questions are left."
    if dataset.unknown_evidence:
        yield f"- {dataset.unknown_evidence} names of evidence that is no turn of its conversation."
    if shallow := max(setting.shallow for setting in dataset.settings):
        yield f"- {shallow} questions, at most, whose ranking came to fewer sessions than the ten that are looked at."


def show(results: Results) -> None:
    """Print the tables."""
    console = Console()
    # Without a terminal, lines are as long as they need to be.
    if not console.is_terminal:
        console = Console(width=240)
    datasets = results.datasets
    every = [*(tables.overall(datasets, level) for level in LEVELS), tables.legs(datasets), tables.targets(datasets)]
    every += [table for dataset in datasets for table in tables.categories(dataset)]
    every += [tables.calibration(datasets), tables.told_apart(datasets), *map(tables.thresholds, datasets)]
    every += [tables.budgets(datasets), *map(tables.ablation, datasets), tables.times(datasets)]
    for table in every:
        if table is None or not table.rows:
            continue
        console.print(f"\n{table.title}", style="bold")
        shown = RichTable(*table.columns, box=box.SIMPLE_HEAD)
        for column in shown.columns[1:]:
            column.justify = "right"
        for row in table.rows:
            shown.add_row(*(cell.replace("**", "").replace("[", "\\[") for cell in row))
        console.print(shown)


def _filled(text: str) -> str:
    """Return a paragraph in lines of the usual length; tables, lists and pictures as they are."""
    plain = not text.startswith(("|", "#", "!", "-")) and "\n" not in text
    return textwrap.fill(text, LINE_CHARACTERS, break_long_words=False, break_on_hyphens=False) if plain else text


def _between(values: Iterable[float], form: str = ".0%") -> str:
    """Return the lowest and the highest of some figures, in words."""
    found = [format(value, form).replace("%", " %") for value in sorted(values)]
    return found[0] if found[0] == found[-1] else f"{found[0]} to {found[-1]}"


def _reranker(results: Results) -> str:
    return f"reranker {results.reranker}" if results.reranker else "no reranker"
