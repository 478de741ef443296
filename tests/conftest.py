"""Fixtures for the tests of several rooms: a real sandbox, and a small, fast checkpoint with random weights."""

from __future__ import annotations

import gc
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from httpx2._config import DEFAULT_TIMEOUT_CONFIG
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from tests.waiting import until
from tirjudge_sandbox import SandboxPool

if TYPE_CHECKING:  # needs Playwright
    from tests.browser import SharedBrowser

GROUPS = {
    "tests/vllm/": "vllm",
    "tests/training/test_verl.py": "verl",
    "tests/training/test_distributed.py::test_two": "distributed",
    "tests/training/test_checked_examples.py": "checked",
    "tests/training/test_tool_helpers.py": "stores",
    "tests/training/data/test_build.py": "build",
    "tests/ray/": "ray",
    "tests/evidence/test_tasks.py": "tasks",
    "tests/harness/reports/test_inspect_log.py": "inspect",
    "tests/integrations/test_inspect.py": "inspect",
    "tests/judge/tools/test_mcp.py": "mcp",
    "tests/judge/engines/test_scalar.py": "scalar",
    "tests/server/test_extreme_numbers.py": "extreme numbers",
    "tests/server/test_logs_hold_no_texts.py": "logs",
    "tests/parsing/test_linear_parsing.py::test_every": "sources",
    "tests/parsing/test_linear_parsing.py::test_re": "sources",
    "tests/test_house.py": "sources",
}
"""Path of tests -> their group."""

LONGEST = (
    "tests/vllm/",
    "tests/training/test_learning.py",
    "tests/training/test_stages.py",
    "tests/training/test_verl.py",
    "tests/training/test_distributed.py",
    "tests/server/test_contract.py",
    "tests/evidence/test_rules_on_tasks.py",
)
"""Paths of the slow tests and groups that take the longest, with the installation of their environments. They start in this
order, before all others."""

HIDDEN, HEADS, HEAD_DIM, CONTEXT = 16, 2, 8, 4096

gc.disable()  # until all tests are collected, which makes millions of objects that stay

# Threads of torch sleep while they wait for work. By default they spin, which takes the time of other processes.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# Clients that tests open without a timeout wait 5 s for an answer, which a server on a busy machine can exceed.
for part in ("connect", "read", "write", "pool"):
    setattr(DEFAULT_TIMEOUT_CONFIG, part, 60.0)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Processes of `pytest -n auto`: one more than there are cores, because many tests wait for other processes. Each
    collects all tests, which takes 20 s of processor time."""
    return len(os.sched_getaffinity(0)) + 1


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark all tests in a browser as slow: a page takes more than a second."""
    if "browser" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    """Exempt the imported modules and the tests from garbage collection, and collect the oldest objects more seldom: such a
    collection reads millions of objects. Young objects are collected as often as usual, while the loop of their test runs."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(700, 10, 500)
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Start the slow tests first, then groups, so that no process works alone at the end. A random order is left as it is."""
    if not config.getoption("random_order_enabled", False):
        items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    if not item.get_closest_marker("slow"):
        return len(LONGEST) + (1 if _group_of(item.nodeid) else 2)
    return next((place for place, path in enumerate(LONGEST) if item.nodeid.startswith(path)), len(LONGEST))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Run the tests of one group in one process. pytest-xdist 3.8 marks groups in node ids, which pytest 9.2 ignores."""
    from xdist.scheduler import LoadScopeScheduling

    config.option.loadscopereorder = False  # would start the groups with the most tests first

    class GroupScheduling(LoadScopeScheduling):
        """Assigns a whole group, or a single test."""

        def _split_scope(self, nodeid: str) -> str:
            return _group_of(nodeid) or nodeid

        def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
            """Also forget units of which all tests are done. The base class counts the tests of all units each time."""
            scope = self._split_scope(self.registered_collections[node][item_index])
            super().mark_test_complete(node, item_index, duration)
            if all(self.assigned_work[node][scope].values()):
                del self.assigned_work[node][scope]

    return GroupScheduling(config, log)


def _group_of(nodeid: str) -> str | None:
    """Return the group of a test: the tests of one environment, one cluster, one data set or one vocabulary. They share what
    is slow to make."""
    if nodeid.startswith("tests/families/"):
        return next((f"family-{name}" for name in ("qwen3", "llama3", "llama4", "tekken") if name in nodeid), None)
    return next((group for path, group in GROUPS.items() if nodeid.startswith(path)), None)


@pytest.fixture(name="until")
def wait_until() -> Callable[[Callable[[], object]], Awaitable[None]]:
    return until


@pytest.fixture
async def pool() -> AsyncIterator[SandboxPool]:
    """A real sandbox of two slots."""
    async with SandboxPool(slots=2) as opened:
        yield opened


@pytest.fixture(scope="session")
def browser() -> Iterator[SharedBrowser]:
    """A real browser that all tests share."""
    from tests.browser import chromium_path, shared_browser

    if chromium_path() is None:
        pytest.skip("Chromium is not installed; tests/chromium.sh installs it")
    with shared_browser() as shared:
        yield shared


@pytest.fixture(scope="session")
def random_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Qwen3 checkpoint with random weights and one token per byte. A rollout has 24 tokens, so its verdict is forced."""
    path = tmp_path_factory.mktemp("random")
    tokenizer = _byte_tokenizer()
    tokenizer.save(str(path / "tokenizer.json"))
    vocab_size = tokenizer.get_vocab_size()
    config = {
        "model_type": "qwen3",
        "vocab_size": vocab_size,
        "hidden_size": HIDDEN,
        "intermediate_size": 2 * HIDDEN,
        "num_hidden_layers": 1,
        "num_attention_heads": HEADS,
        "num_key_value_heads": 1,
        "head_dim": HEAD_DIM,
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": True,
        "eos_token_id": tokenizer.token_to_id("<|im_end|>"),
    }
    (path / "config.json").write_text(json.dumps(config))
    profile = {"name": "random", "context_tokens": CONTEXT, "rollout_tokens": 24, "observation_tokens": 128}
    (path / "judge.json").write_text(json.dumps(profile))
    save_file(_random_weights(vocab_size), path / "model.safetensors")
    return path


def _byte_tokenizer() -> Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<|im_start|>"), AddedToken("<|im_end|>")])
    return tokenizer


def _random_weights(vocab_size: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    layer = "model.layers.0"
    shapes = {
        "model.embed_tokens": (vocab_size, HIDDEN),
        "model.norm": (HIDDEN,),
        f"{layer}.input_layernorm": (HIDDEN,),
        f"{layer}.post_attention_layernorm": (HIDDEN,),
        f"{layer}.self_attn.q_proj": (HEADS * HEAD_DIM, HIDDEN),
        f"{layer}.self_attn.k_proj": (HEAD_DIM, HIDDEN),
        f"{layer}.self_attn.v_proj": (HEAD_DIM, HIDDEN),
        f"{layer}.self_attn.o_proj": (HIDDEN, HEADS * HEAD_DIM),
        f"{layer}.self_attn.q_norm": (HEAD_DIM,),
        f"{layer}.self_attn.k_norm": (HEAD_DIM,),
        f"{layer}.mlp.gate_proj": (2 * HIDDEN, HIDDEN),
        f"{layer}.mlp.up_proj": (2 * HIDDEN, HIDDEN),
        f"{layer}.mlp.down_proj": (HIDDEN, 2 * HIDDEN),
    }
    return {f"{name}.weight": rng.normal(0, 0.5, shape).astype(np.float32) for name, shape in shapes.items()}
