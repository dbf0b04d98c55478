"""The task of a session, with its progress and status."""

from __future__ import annotations

from mnemolog.domain.errors import InvalidInput, NoTask
from mnemolog.domain.events import Event, TaskChanged
from mnemolog.domain.limits import TASK_BYTES_MAX, checked_label, checked_text, checked_whole
from mnemolog.domain.session import opened
from mnemolog.domain.state import SessionState


def set_task(
    session_id: str,
    state: SessionState | None,
    description: str,
    *,
    step: int | None = None,
    total: int | None = None,
    percent: float | None = None,
    status: str = "active",
) -> list[Event]:
    """Decide to work on a task, in place of the one before. Recorded even if it equals that one.

    Raises `UnknownSession`, `SessionAlreadyEnded`, `InvalidInput` or `LimitExceeded`.
    """
    opened(session_id, state)
    return [_checked(description, step=step, total=total, percent=percent, status=status)]


def update_task(
    session_id: str,
    state: SessionState | None,
    *,
    step: int | None = None,
    total: int | None = None,
    percent: float | None = None,
    status: str | None = None,
) -> list[Event]:
    """Decide to change the given fields of the current task; None leaves a field as it is.

    Where nothing would change there is no event. Raises `UnknownSession`, `SessionAlreadyEnded`, `NoTask` or
    `InvalidInput`.
    """
    state = opened(session_id, state)
    if state.task is None:
        raise NoTask(session_id)
    before = state.task
    current = TaskChanged(
        description=before.description,
        step=before.step,
        total=before.total,
        percent=before.percent,
        status=before.status,
    )
    merged = _checked(
        before.description,
        step=before.step if step is None else step,
        total=before.total if total is None else total,
        percent=before.percent if percent is None else percent,
        status=before.status if status is None else status,
    )
    return [] if merged == current else [merged]


def _checked(
    description: str, *, step: int | None, total: int | None, percent: float | None, status: str
) -> TaskChanged:
    step, total = _checked_count("step", step), _checked_count("total", total)
    if step is not None and total is not None and step > total:
        raise InvalidInput("step", f"{step} is more than the total of {total}")
    return TaskChanged(
        description=checked_text("description", description, bytes_max=TASK_BYTES_MAX),
        step=step,
        total=total,
        percent=_checked_percent(percent),
        status=checked_label("status", status),
    )


def _checked_count(field: str, value: int | None) -> int | None:
    return None if value is None else checked_whole(field, value)


def _checked_percent(value: float | None) -> float | None:
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise InvalidInput("percent", f"expected a number, got {type(value).__name__}")
    if not 0 <= value <= 100:  # True of NaN as well.
        raise InvalidInput("percent", "must be from 0 to 100")
    return abs(float(value))  # Minus zero is zero.
