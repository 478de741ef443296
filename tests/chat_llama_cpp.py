"""A llama.cpp server with the bundled judge, as a process. It runs in an environment with xllamacpp and gguf.

    python tests/chat_llama_cpp.py CHECKPOINT PORT KEY

The checkpoint, of the Qwen3 architecture, is written as a GGUF file. xllamacpp has the HTTP server of llama.cpp.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

import gguf
import numpy as np
import xllamacpp

PARTS = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
"""Part of a layer in a checkpoint -> its name in a GGUF file."""


def read_tensors(file: Path) -> dict[str, np.ndarray]:
    """Return the tensors of a safetensors file in bfloat16, as float32."""
    raw = file.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    head, data = json.loads(raw[8 : 8 + size]), raw[8 + size :]
    tensors = {}
    for name, entry in head.items():
        if name == "__metadata__":
            continue
        assert entry["dtype"] == "BF16"
        start, end = entry["data_offsets"]
        bits = np.frombuffer(data[start:end], dtype=np.uint16).astype(np.uint32) << 16
        tensors[name] = bits.view(np.float32).reshape(entry["shape"])
    return tensors


def write_gguf(checkpoint: Path, out: Path) -> None:
    """Write a checkpoint as a GGUF file."""
    config = json.loads((checkpoint / "config.json").read_text())
    writer = gguf.GGUFWriter(str(out), "qwen3")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    add_tokenizer(writer, checkpoint, num_tokens=config["vocab_size"], eos_token_id=config["eos_token_id"])
    names = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
    for layer in range(config["num_hidden_layers"]):
        for theirs, ours in PARTS.items():
            names[f"model.layers.{layer}.{theirs}.weight"] = f"blk.{layer}.{ours}.weight"
    for name, tensor in read_tensors(checkpoint / "model.safetensors").items():
        writer.add_tensor(names[name], tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_tokenizer(writer: gguf.GGUFWriter, checkpoint: Path, *, num_tokens: int, eos_token_id: int) -> None:
    """Add the byte-level BPE tokenizer of a checkpoint and its chat template."""
    tokenizer = json.loads((checkpoint / "tokenizer.json").read_text())
    texts = {token_id: text for text, token_id in tokenizer["model"]["vocab"].items()}
    kinds = dict.fromkeys(texts, gguf.TokenType.NORMAL)
    for token in tokenizer["added_tokens"]:
        texts[token["id"]] = token["content"]
        kinds[token["id"]] = gguf.TokenType.CONTROL if token["special"] else gguf.TokenType.USER_DEFINED
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([texts.get(token_id, f"[PAD{token_id}]") for token_id in range(num_tokens)])
    writer.add_token_types([kinds.get(token_id, gguf.TokenType.UNUSED) for token_id in range(num_tokens)])
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in tokenizer["model"]["merges"]])
    writer.add_eos_token_id(eos_token_id)
    writer.add_add_bos_token(False)
    writer.add_chat_template((checkpoint / "chat_template.jinja").read_text())


def main() -> None:
    checkpoint, port, key = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "judge.gguf"
        write_gguf(checkpoint, model)
        params = xllamacpp.CommonParams()
        params.model.path = str(model)
        params.n_ctx, params.n_parallel, params.kv_unified = 16_384, 2, True
        params.hostnames, params.port, params.api_keys = ["127.0.0.1"], port, [key]
        params.use_jinja, params.warmup = True, False
        params.cpuparams.n_threads = 1
        server = xllamacpp.Server(params)
        print(f"llama.cpp is ready at {server.listening_address}", flush=True)
        while True:
            time.sleep(1)


if __name__ == "__main__":
    main()
