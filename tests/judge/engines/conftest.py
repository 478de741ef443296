"""A tiny random Qwen3 checkpoint, its tokenizer, and transformers as the reference implementation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import Qwen3Config, Qwen3ForCausalLM
from transformers.utils import logging as transformers_logging

from tests.servers import serve_in_thread
from tirjudge.engines.embedded import EmbeddedEngine
from tirjudge_server.worker import create_worker

torch.set_num_threads(1)
transformers_logging.disable_progress_bar()

TEXT = """We count the words of both answers. B follows more of them, so the better one is B.
```python
print(len(response_a.split()), len(response_b.split()))
```
Zwölf Wörter — ein naïver Café-Besucher zählt: 数字 и слова 🙂.


"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A checkpoint folder with its reference model."""

    path: Path
    oracle: Qwen3ForCausalLM

    def logprobs(self, token_ids: list[int]) -> np.ndarray:
        """Log-probabilities after each of the ids, [ids, vocab]."""
        with torch.inference_mode():
            return torch.log_softmax(self.oracle(torch.tensor([token_ids])).logits[0], dim=-1).numpy()


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=378, initial_alphabet=alphabet, special_tokens=[], show_progress=False)
    tokenizer.train_from_iterator([TEXT] * 8, trainer)
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    tags = ("```python", "```output", "<preference>", "</preference>")
    tokenizer.add_tokens([AddedToken(tag, normalized=False) for tag in tags])
    return tokenizer


@pytest.fixture(scope="session")
def make_checkpoint(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Callable[..., Checkpoint]:
    def make(*, dtype: torch.dtype = torch.float32, **changes: Any) -> Checkpoint:
        torch.manual_seed(0)
        sizes = {
            "vocab_size": tokenizer.get_vocab_size() + 4,  # padded, as many vocabularies are
            "hidden_size": 48,
            "intermediate_size": 96,
            "num_hidden_layers": 3,
            "num_attention_heads": 6,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "max_position_embeddings": 512,
            "tie_word_embeddings": True,
            "initializer_range": 0.2,
            "eos_token_id": tokenizer.token_to_id("<|im_end|>"),
        }
        config = Qwen3Config(**(sizes | changes), bos_token_id=None, pad_token_id=None)
        model = Qwen3ForCausalLM(config)
        for name, weight in model.named_parameters():
            if "norm" in name:
                torch.nn.init.uniform_(weight, 0.5, 1.5)
        path = tmp_path_factory.mktemp("checkpoint")
        model.to(dtype).save_pretrained(path)
        tokenizer.save(str(path / "tokenizer.json"))
        # Load the model again: rounding it in place would also round its rotary frequencies.
        return Checkpoint(path=path, oracle=Qwen3ForCausalLM.from_pretrained(path, dtype=torch.float32).eval())

    return make


@pytest.fixture(scope="session")
def checkpoint(make_checkpoint: Callable[..., Checkpoint]) -> Checkpoint:
    return make_checkpoint()


@pytest.fixture
def make_engine(checkpoint: Checkpoint) -> Iterator[Callable[..., EmbeddedEngine]]:
    made: list[EmbeddedEngine] = []

    def make(path: Path = checkpoint.path, **options: Any) -> EmbeddedEngine:
        made.append(EmbeddedEngine.load(path, **options))
        return made[-1]

    yield make
    for engine in made:
        engine.close()


@pytest.fixture(scope="session")
def shared_engine(checkpoint: Checkpoint) -> Iterator[EmbeddedEngine]:
    engine = EmbeddedEngine.load(checkpoint.path)
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def worker_url(shared_engine: EmbeddedEngine) -> Iterator[str]:
    """A mini worker with `shared_engine` on a real socket."""
    with serve_in_thread(create_worker(shared_engine, name="tiny")) as url:
        yield url
