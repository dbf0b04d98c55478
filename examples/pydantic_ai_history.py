"""The history of an agent of Pydantic AI: each message whole in the metadata of its turn (docs/frameworks.md)."""

from pydantic_ai import Agent, ModelMessage, ModelMessagesTypeAdapter, ModelResponse
from pydantic_ai.models.test import TestModel

from mnemolog import MemoryStore, NewTurn, Session


def record(session: Session, messages: list[ModelMessage]) -> None:
    """Record messages as turns."""
    turns = []
    for message, kept in zip(messages, ModelMessagesTypeAdapter.dump_python(messages, mode="json"), strict=True):
        said = [part for part in message.parts if part.part_kind in ("user-prompt", "text", "tool-return")]
        role = "assistant" if isinstance(message, ModelResponse) else "user"
        role = "tool" if said and said[0].part_kind == "tool-return" else role
        text = "\n".join(str(part.content) for part in said) or "[tool call]"
        turns.append(NewTurn(session=session.id, role=role, text=text, metadata={"message": kept}))
    session.record_many(turns)


def history(session: Session) -> list[ModelMessage]:
    """Return the messages that a session sees."""
    return ModelMessagesTypeAdapter.validate_python([turn.metadata["message"] for turn in session.turns()])


agent = Agent(TestModel())
with MemoryStore.open("memory/", model=None) as store:
    trip = store.session("trip", scope="acme/alice")
    for prompt in ("I moved to Lisbon in March.", "Where do I live?"):
        answer = agent.run_sync(prompt, message_history=history(trip))
        record(trip, answer.new_messages())
    found = store.recall("When did she move to Lisbon?")[0].text
