"""Checkpoints to put without a graph, which takes seconds to import."""

from typing import Any

from langgraph.checkpoint.base import empty_checkpoint


def at(thread: str, checkpoint: str | None = None, *, ns: str = "") -> dict[str, Any]:
    """Return a configuration."""
    named = {} if checkpoint is None else {"checkpoint_id": checkpoint}
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ns, **named}}


def checkpoint(number: int, values: dict[str, Any], versions: dict[str, int] | None = None) -> Any:
    """Return a checkpoint; those of a higher number are newer."""
    made = empty_checkpoint()
    made["id"] = f"{number:08d}"
    made["channel_values"] = values
    made["channel_versions"] = dict.fromkeys(values, number) if versions is None else versions
    return made


def chain(saver: Any, thread: str, values: list[dict[str, Any]], *, run: str | None = None) -> list[Any]:
    """Put checkpoints one behind the other, with all their channels changed; return their configurations."""
    config, made = at(thread), []
    for number, held in enumerate(values):
        put = checkpoint(number, held)
        metadata: Any = {"source": "loop", "step": number, **({} if run is None else {"run_id": run})}
        config = saver.put(config, put, metadata, put["channel_versions"])
        made.append(config)
    return made
