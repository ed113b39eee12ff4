"""Reference EAGLE-3, row by row without cache or tree, and folders of random weights in the published forms."""

from __future__ import annotations

import json

import torch
from safetensors.torch import save_file
from torch.nn.functional import linear, silu

from tests.unit.reference_drafters import norm, rotate

KEY = "eagle_aux_hidden_state_layer_ids"


class Definition:
    """weights: tensors by their published names without prefixes; flags: as in the config."""

    def __init__(self, weights, heads, kv_heads, eps, theta, embedding, **flags):
        self.w, self.heads, self.kv_heads, self.eps, self.theta = weights, heads, kv_heads, eps, theta
        self.embedding, self.flags = embedding, flags

    def row(self, position, token, feature, above):
        """Hidden state of a row; ``above``: (key, value) of the rows that it sees. The row's own pair is appended."""
        w, eps = self.w, self.eps
        normed = norm(feature, w["hidden_norm.weight"], eps)
        x = torch.cat([norm(self.embedding[token], w["input_layernorm.weight"], eps), normed])
        query, key, value = (
            linear(x, w[f"self_attn.{n}_proj.weight"]).view(h, -1)
            for n, h in (("q", self.heads), ("k", self.kv_heads), ("v", self.kv_heads))
        )
        if "self_attn.q_norm.weight" in w:
            query, key = norm(query, w["self_attn.q_norm.weight"], eps), norm(key, w["self_attn.k_norm.weight"], eps)
        rope = {"rope_theta": self.theta}
        query, key = (rotate(x[:, None], [position], rope)[:, 0] for x in (query, key))
        above.append((key, value))
        out = []
        for head in range(self.heads):
            shared = head * self.kv_heads // self.heads
            keys, values = (torch.stack([pair[i][shared] for pair in above]) for i in (0, 1))
            out.append((keys @ query[head] / query.shape[-1] ** 0.5).softmax(0) @ values)
        hidden = normed if self.flags.get("norm_before_residual") else feature
        hidden = hidden + linear(torch.cat(out), w["self_attn.o_proj.weight"])
        x = norm(hidden, w["post_attention_layernorm.weight"], eps)
        x = silu(linear(x, w["mlp.gate_proj.weight"])) * linear(x, w["mlp.up_proj.weight"])
        return hidden + linear(x, w["mlp.down_proj.weight"])

    def logs(self, ids, taps, path):
        """log p of every draft token after the committed ``ids`` and the drafted ``path``.

        taps: tapped layer outputs by position, (len(ids) − 1, taps, width).
        """
        w, eps = self.w, self.eps
        above, tokens, hidden = [], [*ids, *path], None
        for position, token in enumerate(tokens[1:]):
            if position < len(ids) - 1:
                tapped = taps[position]
                if self.flags.get("fc_norm"):
                    tapped = torch.stack([norm(t, w[f"fc_norm.{n}.weight"], eps) for n, t in enumerate(tapped)])
                feature = linear(tapped.flatten(), w["fc.weight"])
            else:
                feature = norm(hidden, w["norm.weight"], eps) if self.flags.get("norm_output") else hidden
            hidden = self.row(position, token, feature, above)
        logits = linear(norm(hidden, w["norm.weight"], eps), w["lm_head.weight"])
        offsets = w.get("d2t", torch.zeros(len(logits), dtype=torch.int64))
        return {draft + int(offsets[draft]): float(log) for draft, log in enumerate(logits.log_softmax(0))}


def best_nodes(definition, ids, taps, depth, top_k, total):
    """Paths of the tree's nodes with their scores, built level by level as in the papers."""
    pool, beams = {}, {(): 0.0}
    for _ in range(depth + 1):
        found = {}
        for path, score in beams.items():
            logs = definition.logs(ids, taps, path)
            for token in sorted(logs, key=lambda t: -logs[t])[:top_k]:
                found[*path, token] = score + logs[token]
        pool |= found
        beams = {p: found[p] for p in sorted(found, key=lambda p: -found[p])[:top_k]}
    return {p: pool[p] for p in sorted(pool, key=lambda p: -pool[p])[:total]}


def write_folder(folder, form, target, *, draft_vocab=None, layers=None, seed=0, **flags):
    """Writes an EAGLE-3 folder of random weights in a published form; returns its definition.

    form: specforge, angelslim or speculators; layers: tapped target layers, left out of the config if None.
    """
    torch.manual_seed(seed)
    c = target.config
    hidden, heads, kv, size, inner, vocab = c.hidden_size, 4, 2, 16, 48, c.vocab_size
    count = draft_vocab or vocab
    eps, theta = 1e-6, 10_000.0
    shapes = {
        "self_attn.q_proj": (heads * size, 2 * hidden), "self_attn.k_proj": (kv * size, 2 * hidden),
        "self_attn.v_proj": (kv * size, 2 * hidden), "self_attn.o_proj": (hidden, heads * size),
        "mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden), "mlp.down_proj": (hidden, inner),
        "hidden_norm": (hidden,), "input_layernorm": (hidden,), "post_attention_layernorm": (hidden,),
    }  # fmt: skip
    outer = {"fc": (hidden, 3 * hidden), "norm": (hidden,), "lm_head": (count, hidden)}
    if flags.get("fc_norm"):
        outer |= {f"fc_norm.{n}": (hidden,) for n in range(3)}
    qwen = form == "speculators" and c.model_type == "qwen3"
    if qwen:
        shapes |= {"self_attn.q_norm": (size,), "self_attn.k_norm": (size,)}

    def draw(shape):
        return torch.rand(shape) + 0.5 if len(shape) == 1 else torch.randn(shape) * 2 / shape[1] ** 0.5

    inside, outside = ({f"{k}.weight": draw(s) for k, s in part.items()} for part in (shapes, outer))
    prefix = "layers.0." if form == "speculators" else "midlayer."
    tensors = {**{prefix + k: v for k, v in inside.items()}, **outside}
    embedding = target.embedding.weight
    if draft_vocab:
        ids = torch.randperm(vocab)[:count].sort().values
        outside["d2t"] = tensors["d2t"] = ids - torch.arange(count)
        tensors["t2d"] = torch.zeros(vocab, dtype=torch.bool).index_fill(0, ids, True)
    shape = {
        "hidden_size": hidden, "intermediate_size": inner, "num_attention_heads": heads, "num_key_value_heads": kv,
        "head_dim": size, "vocab_size": vocab, "rms_norm_eps": eps, "max_position_embeddings": 512, "hidden_act": "silu",
        "num_hidden_layers": 1, "attention_bias": False,
    }  # fmt: skip
    if form == "speculators":
        embedding = tensors["embed_tokens.weight"] = torch.randn(vocab, hidden)
        config = {
            "architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3", "draft_vocab_size": count,
            "transformer_layer_config": {"model_type": "qwen3" if qwen else "llama", "rope_theta": theta, **shape},
            "speculators_config": {"algorithm": "eagle3"}, **flags,
        }  # fmt: skip
        if layers:
            config[KEY] = [n + 1 for n in layers]
    else:
        name = {"specforge": "LlamaForCausalLMEagle3", "angelslim": "Eagle3LlamaForCausalLM"}[form]
        config = {"architectures": [name], "model_type": "llama", "draft_vocab_size": count, **shape, **flags}
        if layers:
            config["eagle_config"] = {KEY: list(layers), "use_aux_hidden_state": True}
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    save_file({k: v.contiguous() for k, v in tensors.items()}, folder / "model.safetensors")
    return Definition({**inside, **outside}, heads, kv, eps, theta, embedding, **flags)
