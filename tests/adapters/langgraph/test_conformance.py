"""LangGraph's own suite for checkpointers."""

from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import ALL_CAPABILITIES

from mnemolog.adapters.langgraph import MnemologSaver


async def test_the_saver_passes_every_capability_of_the_conformance_suite(tmp_path):
    """Base and extended, none skipped, on a store of its own for each."""
    made = iter(range(1_000))

    @checkpointer_test(name="MnemologSaver")
    async def savers():
        async with MnemologSaver.open(tmp_path / str(next(made))) as saver:
            yield saver

    report = await validate(savers)
    assert report.results.keys() == {capability.value for capability in ALL_CAPABILITIES}
    assert [failure for result in report.results.values() for failure in result.failures] == []
    assert all(result.passed for result in report.results.values())
    assert report.conformance_level() == "FULL"
