"""The forward pass of Qwen3 for training on many short rows with a common prefix.

The module uses the weights of transformers' `Qwen3ForCausalLM`, and a test compares the hidden states. The difference: the
common prefix of all rows is computed once, and all rows attend to it in one large matrix product. A key-value cache
would be copied for each row.
"""

from __future__ import annotations

from typing import cast

import torch
from torch.nn import functional as F
from transformers import Qwen3Config, Qwen3ForCausalLM
from transformers.models.qwen3.modeling_qwen3 import Qwen3DecoderLayer

FLAT_STEP = 128
"""The number of positions in a matrix product is padded to a multiple of this, so that batches have only a few
shapes."""


def hidden_states(
    model: Qwen3ForCausalLM, *, shared: torch.Tensor, ids: torch.Tensor, places: torch.Tensor
) -> torch.Tensor:
    """Return the final normalized hidden states at some positions of the rows.

    Only these positions go through the feed-forward part of the last layer.

    Args:
        model: Model whose weights are used.
        shared: (P,) token ids of the common prefix of all rows; P may be 0.
        ids: (B, T) token ids after the prefix, padded on the right. The state at a padded position is meaningless and
            does not affect earlier positions.
        places: (K,) indices into the flattened `ids`.

    Returns:
        Hidden states, (K, hidden_size).
    """
    config = model.config
    num_shared, (num_rows, length) = len(shared), ids.shape
    flat = torch.cat([shared, ids.flatten()])
    flat = F.pad(flat, (0, -len(flat) % FLAT_STEP))
    x = F.embedding(flat, model.model.embed_tokens.weight)
    cos, sin = _rotations(num_shared, num_rows, length, num_places=len(flat), model=model)
    causal = torch.full((length, length), -torch.inf, device=ids.device).triu(1)
    layers = cast("list[Qwen3DecoderLayer]", list(model.model.layers))
    for layer in layers:
        attention, mlp = layer.self_attn, layer.mlp
        h = _rms_norm(x, layer.input_layernorm.weight, config.rms_norm_eps)
        q = _heads(attention.q_proj(h), attention.q_norm.weight, config, cos, sin)
        k = _heads(attention.k_proj(h), attention.k_norm.weight, config, cos, sin)
        v = attention.v_proj(h).view(len(flat), -1, config.head_dim)
        mixed = _attend(q, k, v, num_shared=num_shared, num_rows=num_rows, causal=causal)
        if layer is layers[-1]:
            x, mixed = x[num_shared + places], mixed[num_shared + places]
        x = x + attention.o_proj(mixed)
        h = _rms_norm(x, layer.post_attention_layernorm.weight, config.rms_norm_eps)
        x = x + mlp.down_proj(F.silu(mlp.gate_proj(h)) * mlp.up_proj(h))
    return _rms_norm(x, model.model.norm.weight, config.rms_norm_eps)


def _rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    # F.rms_norm and its gradient are slower on a CPU.
    scale = torch.rsqrt(torch.linalg.vecdot(x, x).float() / x.shape[-1] + eps)
    return x * scale[..., None].to(x.dtype) * weight.to(x.dtype)


def _rotations(
    num_shared: int, num_rows: int, length: int, *, num_places: int, model: Qwen3ForCausalLM
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return cos and sin of the rotary embedding for every position: (N, 1, head_dim) each."""
    frequencies = cast(torch.Tensor, model.model.rotary_emb.inv_freq)
    places = torch.arange(num_shared + length, device=frequencies.device)
    places = torch.cat([places[:num_shared], places[num_shared:].repeat(num_rows)])
    places = F.pad(places, (0, num_places - len(places)))
    angles = torch.outer(places.float(), frequencies)
    angles = torch.cat([angles, angles], dim=-1)[:, None]
    return angles.cos(), angles.sin()


def _heads(
    x: torch.Tensor, weight: torch.Tensor, config: Qwen3Config, cos: torch.Tensor, sin: torch.Tensor
) -> torch.Tensor:
    """Reshape (N, heads * head_dim) to (N, heads, head_dim), normalize each head and apply the rotary embedding."""
    x = x.view(len(x), -1, len(weight))
    x = _rms_norm(x, weight, config.rms_norm_eps)
    half = len(weight) // 2
    turned = torch.cat([-x[..., half:], x[..., :half]], dim=-1)
    return x * cos.to(x.dtype) + turned * sin.to(x.dtype)


def _attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, num_shared: int, num_rows: int, causal: torch.Tensor
) -> torch.Tensor:
    """Attention: each row attends to the prefix and to itself, the prefix attends to itself.

    Returns:
        (N, heads * head_dim).
    """
    num_heads, num_kv_heads, dim = q.shape[1], k.shape[1], q.shape[2]
    group, length = num_heads // num_kv_heads, len(causal)
    num_places = num_shared + num_rows * length
    filling = q.new_zeros(len(q) - num_places, num_heads * dim)
    q, k, v = (q * dim**-0.5)[:num_places], k[:num_places], v[:num_places]
    prefix = torch.empty(0, num_heads * dim, dtype=q.dtype, device=q.device)
    if num_shared:
        mask = torch.full((num_shared, num_shared), -torch.inf, device=q.device, dtype=q.dtype).triu(1)
        first_k, first_v = (t[:num_shared].transpose(0, 1).repeat_interleave(group, 0) for t in (k, v))
        scores = torch.baddbmm(mask, q[:num_shared].transpose(0, 1), first_k.transpose(1, 2))
        prefix = (scores.softmax(-1) @ first_v).transpose(0, 1).reshape(num_shared, -1)
    # Rows: heads of one group share keys, so they are stacked as additional queries.
    rows = q[num_shared:].view(num_rows, length, num_kv_heads, group, dim).permute(2, 0, 3, 1, 4)
    own_q = rows.reshape(num_kv_heads * num_rows, group * length, dim)
    own_k, own_v = (
        t[num_shared:].view(num_rows, length, num_kv_heads, dim).permute(2, 0, 1, 3).reshape(-1, length, dim)
        for t in (k, v)
    )
    scores = torch.baddbmm(causal.to(q.dtype).repeat(group, 1), own_q, own_k.transpose(1, 2))
    if num_shared:
        shared_k, shared_v = (t[:num_shared].transpose(0, 1) for t in (k, v))
        far_q = own_q.view(num_kv_heads, -1, dim)
        far = torch.bmm(far_q, shared_k.transpose(1, 2)).view(num_kv_heads * num_rows, group * length, num_shared)
        weights = torch.cat([far, scores], dim=-1).softmax(-1)
        far_weights, own_weights = weights.split([num_shared, length], dim=-1)
        mixed = torch.bmm(own_weights, own_v)
        far_mixed = torch.bmm(far_weights.reshape(num_kv_heads, -1, num_shared), shared_v)
        mixed = mixed + far_mixed.view_as(mixed)
    else:
        mixed = torch.bmm(scores.softmax(-1), own_v)
    mixed = mixed.view(num_kv_heads, num_rows, group, length, dim).permute(1, 3, 0, 2, 4)
    return torch.cat([prefix, mixed.reshape(num_rows * length, num_heads * dim), filling])
