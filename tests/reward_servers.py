"""Servers of scalar reward models with the requests and responses of SGLang and of text-embeddings-inference. A real model
computes the scores, with the tokenizer of transformers. `vllm_app` has scores that a test gives."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route


class Classifier:
    """A sequence classifier of transformers, called directly.

    Args:
        folder: folder of the model.
    """

    def __init__(self, folder: Path) -> None:
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self.model: Any = AutoModelForSequenceClassification.from_pretrained(folder, dtype="auto").eval()

    def outputs(self, ids: list[int]) -> list[float]:
        """Return the outputs for a text, given as ids."""
        import torch

        with torch.inference_mode():
            return self.model(input_ids=torch.tensor([ids])).logits[0].tolist()

    def score(self, messages: list[dict[str, str]]) -> float:
        """Return the score as in the README of Skywork-Reward-V2: the template without its BOS, then the tokenizer."""
        text = self.tokenizer.apply_chat_template(messages, tokenize=False)
        if self.tokenizer.bos_token is not None:
            text = text.removeprefix(self.tokenizer.bos_token)
        return self.outputs(self.tokenizer(text)["input_ids"])[0]


def sglang_app(classifier: Classifier, *, max_tokens: int, bodies: list[Any]) -> Starlette:
    """Return an application with the routes of SGLang. `bodies` receives each request."""

    async def classify(request: Request) -> JSONResponse:
        body = await request.json()
        bodies.append(body)
        ids = body["input_ids"]
        return JSONResponse({"embedding": classifier.outputs(ids), "meta_info": {"id": "1", "prompt_tokens": len(ids)}})

    async def models(request: Request) -> JSONResponse:
        card = {"id": "reward", "object": "model", "owned_by": "sglang", "max_model_len": max_tokens}
        return JSONResponse({"object": "list", "data": [card]})

    return Starlette(routes=[Route("/classify", classify, methods=["POST"]), Route("/v1/models", models)])


def inference_app(classifier: Classifier, *, max_tokens: int, bodies: list[Any], kind: str = "reranker") -> Starlette:
    """Return an application with the routes of text-embeddings-inference. `bodies` receives each request."""

    async def predict(request: Request) -> JSONResponse:
        body = await request.json()
        bodies.append(body)
        ids = classifier.tokenizer(body["inputs"])["input_ids"]
        if len(ids) > max_tokens:
            message = f"`inputs` must have less than {max_tokens} tokens. Given: {len(ids)}"
            return JSONResponse({"error": message, "error_type": "Validation"}, status_code=413)
        scores = classifier.outputs(ids)
        return JSONResponse([{"score": score, "label": f"LABEL_{i}"} for i, score in enumerate(scores)])

    async def info(request: Request) -> JSONResponse:
        labels = {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}
        model_type = {kind: labels if kind != "embedding" else {"pooling": "cls"}}
        return JSONResponse({"model_id": "me/reward", "model_type": model_type, "max_input_length": max_tokens})

    return Starlette(routes=[Route("/predict", predict, methods=["POST"]), Route("/info", info)])


BOS = 7
"""Id of the token at the beginning of a sequence of `vllm_app`."""


def vllm_app(
    score: Callable[[list[dict[str, str]]], float],
    *,
    beginning: Sequence[int] = (BOS,),
    activates: bool = False,
    refused_role: str | None = None,
) -> Starlette:
    """Return an application with the routes of vLLM with `--runner pooling`.

    Args:
        score: raw score of a conversation.
        beginning: ids that the chat template writes at the beginning. The tokenizer alone writes `BOS`.
        activates: whether all scores are those after a sigmoid, as of a server that does not know `use_activation`.
        refused_role: role that the chat template refuses. None: it refuses none.
    """

    async def classify(request: Request) -> JSONResponse:
        body = await request.json()
        if any(message["role"] == refused_role for message in body["messages"]):
            message = f"{str(refused_role).title()} role not supported"
            error = {"message": message, "type": "BadRequestError", "param": None, "code": 400}
            return JSONResponse({"error": error}, status_code=400)
        value = score(body["messages"])
        value = 1 / (1 + math.exp(-value)) if activates or body["use_activation"] else value
        return JSONResponse({"data": [{"probs": [value]}], "usage": {"prompt_tokens": 3}})

    async def tokenize(request: Request) -> JSONResponse:
        body = await request.json()
        start = beginning if "messages" in body else (BOS,) if body.get("add_special_tokens", True) else ()
        return JSONResponse({"tokens": [*start, 1, 2], "count": 2 + len(start), "max_model_len": 100})

    async def models(request: Request) -> JSONResponse:
        return JSONResponse({"data": [{"id": "reward", "owned_by": "vllm", "max_model_len": 100}]})

    routes = [Route("/classify", classify, methods=["POST"]), Route("/tokenize", tokenize, methods=["POST"])]
    return Starlette(routes=[*routes, Route("/v1/models", models)])
