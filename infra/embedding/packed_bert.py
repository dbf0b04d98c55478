"""Run a BERT model faster than the library does, for the same vectors (docs/adr/0037-packed-weights.md).

The library spends most of a question's time on reading weights, and much of the rest on Python. Here the weights of
linear layers are packed for the processor as float16 (half the bytes), inputs and sums are float32, the tokens of
several texts lie end to end without padding, and query, key and value are one product. Each text is computed by one
thread: several would wait for each other dozens of times, and long each time when other processes use the cores.

The vectors differ from the library's by the rounding of the weights: their cosine is 1 within `DIFFERENCE_MAX`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mnemolog.infra.embedding.model_files import ModelProfile

DIFFERENCE_MAX: Final = 1e-5
"""How far the cosine with a vector of the library may be from 1. With MiniLM it is below 1e-6."""
ONE_THREAD_TOKENS: Final = 128
"""A batch of at most so many tokens is computed by one thread."""
_PROBES: Final = ("tea", "Where did Ana put the green tea that she bought in Porto last week, and what did it cost?")


class PackedBert:
    """A loaded BERT model with mean pooling. Safe for many threads, which do not wait for each other.

    Takes the tokens of texts, special tokens included. `packed` says for which models there is one.
    """

    def __init__(self, bert: Any) -> None:
        import torch
        from threadpoolctl import ThreadpoolController

        self._torch = torch
        self._threads = ThreadpoolController().select(user_api="openmp")
        config, made = bert.config, bert.embeddings
        self._heads, self._width = config.num_attention_heads, config.hidden_size
        self._words = made.word_embeddings.weight.detach()
        self._places = (made.position_embeddings.weight + made.token_type_embeddings.weight[0]).detach()
        self._norm = _Norm(torch, made.LayerNorm)
        self._layers = [_Layer(torch, layer) for layer in bert.encoder.layer]

    def encode(self, texts: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """Return the mean of each text's token vectors; shape (len(texts), dimension), in the order given.

        A short batch is computed by the calling thread, another one by as many threads as torch is set to use.
        """
        rows = np.empty((len(texts), self._width), dtype=np.float32)
        order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
        threads = 1 if sum(map(len, texts)) <= ONE_THREAD_TOKENS else self._torch.get_num_threads()
        parts = [order[start::threads] for start in range(min(threads, len(order)))]
        if len(parts) == 1:
            rows[order] = self._means([texts[number] for number in order])
            return rows
        with ThreadPoolExecutor(len(parts)) as pool:
            made = pool.map(self._means, [[texts[number] for number in part] for part in parts])
            for part, means in zip(parts, made, strict=True):
                rows[part] = means
        return rows

    def _means(self, texts: list[Sequence[int]]) -> NDArray[np.float32]:
        """Compute texts, ordered by length, in this thread alone.

        OpenMP keeps the number of threads for each thread that calls it, so no other caller of torch is affected.
        """
        torch = self._torch
        runs = [(length, len(list(same))) for length, same in groupby(map(len, texts))]
        tokens = [token for text in texts for token in text]
        places = [place for text in texts for place in range(len(text))]
        torch.get_num_threads()  # Torch sets the number of a new thread when it is first read.
        with self._threads.limit(limits=1), torch.inference_mode():
            made = self._forward(torch.tensor(tokens), torch.tensor(places), runs)
            means = [part.view(count, length, -1).mean(1) for (length, count), part in _split(made, runs)]
            found: NDArray[np.float32] = torch.cat(means).numpy()
        return found

    def _forward(self, tokens: Any, places: Any, runs: list[tuple[int, int]]) -> Any:
        functional = self._torch.nn.functional
        state = self._norm(self._words[tokens] + self._places[places])
        for layer in self._layers:
            joint = layer.query_key_value(state)
            seen = [self._attention(part, length, count) for (length, count), part in _split(joint, runs)]
            state = layer.norm(layer.output(seen[0] if len(seen) == 1 else self._torch.cat(seen)) + state)
            state = layer.last_norm(layer.narrow(functional.gelu(layer.widen(state))) + state)
        return state

    def _attention(self, joint: Any, length: int, count: int) -> Any:
        """Attend within each of `count` texts of the same length."""
        each = joint.view(count, length, 3, self._heads, -1).permute(2, 0, 3, 1, 4)
        found = self._torch.nn.functional.scaled_dot_product_attention(*each)
        return found.transpose(1, 2).reshape(count * length, self._width)


class _Norm:
    def __init__(self, torch: Any, norm: Any) -> None:
        self._apply = torch.nn.functional.layer_norm
        self._settings = norm.normalized_shape, norm.weight.detach(), norm.bias.detach(), norm.eps

    def __call__(self, state: Any) -> Any:
        return self._apply(state, *self._settings)


class _Linear:
    def __init__(self, torch: Any, *linears: Any) -> None:
        weight, bias = (torch.cat([getattr(one, name).detach() for one in linears]) for name in ("weight", "bias"))
        self._apply = torch.ops.quantized.linear_dynamic_fp16
        self._packed = torch.ops.quantized.linear_prepack_fp16(weight, bias)

    def __call__(self, state: Any) -> Any:
        return self._apply(state, self._packed)


class _Layer:
    def __init__(self, torch: Any, layer: Any) -> None:
        attention = layer.attention
        own = attention.self
        self.query_key_value = _Linear(torch, own.query, own.key, own.value)
        self.output = _Linear(torch, attention.output.dense)
        self.norm = _Norm(torch, attention.output.LayerNorm)
        self.widen = _Linear(torch, layer.intermediate.dense)
        self.narrow = _Linear(torch, layer.output.dense)
        self.last_norm = _Norm(torch, layer.output.LayerNorm)


def packed(model: Any, profile: ModelProfile, tokenizer: Any, *, device: str) -> PackedBert | None:
    """Return the packed form of a loaded SentenceTransformer; None for models, devices and processors without one.

    There is one for BERT with mean pooling, on processors for which torch has FBGEMM (x86). Its vectors of two texts
    are compared with the library's; None if they differ by more than `DIFFERENCE_MAX`.
    """
    if device != "cpu" or profile.pooling != "mean" or not _is_bert(model):
        return None
    try:
        made = PackedBert(model[0].model)
        rows = made.encode([tokenizer.encode(text).ids for text in _PROBES])
        wanted = model.encode(list(_PROBES), prompt="", show_progress_bar=False)
    except (ImportError, AttributeError, RuntimeError):
        return None  # Another version of a library, or a processor without FBGEMM.
    cosines = (rows * wanted).sum(1) / np.linalg.norm(rows, axis=1) / np.linalg.norm(wanted, axis=1)
    return made if (np.abs(1 - cosines) <= DIFFERENCE_MAX).all() else None


def _is_bert(model: Any) -> bool:
    """Whether the model is BERT with pooling, and nothing else that changes the direction of a vector."""
    kinds = [type(part).__name__ for part in model]
    bert: Any = getattr(model[0], "model", None)
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        return False
    if type(bert).__name__ != "BertModel" or model.truncate_dim is not None:
        return False
    return bool(bert.config.hidden_act == "gelu" and not bert.config.is_decoder)


def _split(rows: Any, runs: list[tuple[int, int]]) -> Iterator[tuple[tuple[int, int], Any]]:
    """Yield each run of texts of one length, as (length, count), with its rows."""
    return zip(runs, rows.split([length * count for length, count in runs]), strict=True)
