"""A store that others have made, taken over by a model: from its events, fact by fact."""

from mnemolog.domain import events
from mnemolog.domain.events import RecordedEvent
from tests.faults.simulation.accidents import Accidents
from tests.faults.simulation.model import StoreModel

AGENT = "agent/agent"
"""The stream of the agent that scripts switch."""
SESSION = "session/"


def adopt(world: Accidents) -> None:
    """Have the model know what the store holds; from then on one of its own models answers."""
    adopting = Adopting(world.model)
    for event in world.store.events():
        adopting.take(event)
    world.model.time = world.clock.now()
    if world.model.now.model is not None and world.with_models:
        world.activate(0)
    world.model.adopted = world.model.head


class Adopting:
    """Takes the events of a log in order. What it does not know changes nothing that scripts look at."""

    def __init__(self, model: StoreModel) -> None:
        self.model = model
        self.checkpoints: dict[str, str] = {}
        """Names by id."""

    def take(self, recorded: RecordedEvent) -> None:
        """Take the next event."""
        model, event = self.model, recorded.event
        model.time = recorded.recorded_at
        name = recorded.stream.removeprefix(SESSION)
        match event:
            case events.SessionStarted(parent=None):
                model.started(name, scope=event.scope)
            case events.SessionStarted():
                model.branched(name, parent=event.parent or "", at=event.branched_at or 0, scope=event.scope)
            case events.TurnRecorded():
                model.said(name, event.text, key=recorded.key)
            case events.SessionEnded():
                model.ended(name)
            case events.SessionResumed():
                model.resumed(name)
            case events.SessionSwitched() if recorded.stream == AGENT:
                model.switched(event.to)
            case events.ModelActivated():
                model.activated(-1)
            case _:
                self._take_memory(name, event)

    def _take_memory(self, name: str, event: events.Event) -> None:
        model = self.model
        match event:
            case events.ValueSet():
                model.value_set(name, event.key, event.value, ends=event.expires_at)
            case events.ValueDeleted():
                model.value_deleted(name, event.key)
            case events.ValuesCleared():
                model.values_cleared(name)
            case events.TaskChanged():
                model.task_changed(name, event.description, event.step)
            case events.NoteAdded():
                model.noted(name, event.text)
            case events.NotesCleared():
                model.notes_cleared(name)
            case events.CheckpointCreated():
                self.checkpoints[event.id] = event.name
                model.checkpointed(name, event.name)
            case events.CheckpointDeleted():
                model.checkpoint_deleted(name, self.checkpoints[event.id])
            case events.CheckpointRestored():
                model.restored(name, self.checkpoints[event.id])
            case events.TurnsRewound():
                model.rewound(name, to=event.to)
            case _:
                model.noticed()
