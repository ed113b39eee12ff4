"""Reference block drafters, row by row in float64, from the papers and published layouts.

They read tensors by their published names and share no code with ``d2sd.nets``.
"""

from __future__ import annotations

import math

import torch


def norm(x, weight, eps=1e-6):
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * weight


def frequencies(rope, dim):
    """Rotary frequencies and the factor of cosines and sines; YaRN as in its paper (arXiv 2309.00071)."""
    base = rope["rope_theta"]
    plain = torch.tensor([base ** (-2 * i / dim) for i in range(dim // 2)])
    if rope.get("rope_type", "default") == "default":
        return plain, 1.0
    factor, original = rope["factor"], rope["original_max_position_embeddings"]

    def turns(n):
        return dim * math.log(original / (n * 2 * math.pi)) / (2 * math.log(base))

    low, high = max(math.floor(turns(32)), 0), min(math.ceil(turns(1)), dim - 1)
    ramp = ((torch.arange(dim // 2) - low) / (high - low)).clamp(0, 1)
    return plain / factor * ramp + plain * (1 - ramp), 0.1 * math.log(factor) + 1


def rotate(x, positions, rope):
    """Rotates the rows of ``x``, (heads, rows, dim), to these positions."""
    freq, factor = frequencies(rope, x.shape[-1])
    out = torch.empty_like(x)
    half = x.shape[-1] // 2
    for row, position in enumerate(positions):
        cos, sin = (position * freq).cos() * factor, (position * freq).sin() * factor
        a, b = x[:, row, :half], x[:, row, half:]
        out[:, row, :half], out[:, row, half:] = a * cos - b * sin, b * cos + a * sin
    return out


def convolve(w, name, x, dynamic, side, kernel, group):
    """DFlash 2's convolution before (side 0) or after (side 1) a sublayer; dynamic: (rows, 2, kernel, groups)."""
    out = torch.zeros_like(x)
    for t in range(len(x)):
        for k in range(kernel):
            if t - k >= 0:
                weight = w[f"{name}.base_kernel"][side, k].clone()
                for channel in range(x.shape[1]):
                    weight[channel] += dynamic[t, side, k, channel // group]
                out[t] += weight * x[t - k]
    return out


class Reference:
    """A drafter with this config, normalised by the test: flat keys, ``windows`` and ``causal`` by layer, ``reads``."""

    def __init__(self, plan, weights, embedding, head):
        self.c, self.w = plan, {k: v.double() for k, v in weights.items()}
        self.embedding, self.head = embedding.double(), head.double()

    def sublayer(self, name, x, run):
        if f"{name}.base_kernel" not in self.w:
            return run(x)
        c = self.c
        groups = x.shape[1] // c["group"]
        dynamic = (x @ self.w[f"{name}.kernel_projection.weight"].T).view(len(x), 2, c["kernel"], groups)
        x = convolve(self.w, name, x, dynamic, 0, c["kernel"], c["group"])
        return convolve(self.w, name, run(x), dynamic, 1, c["kernel"], c["group"])

    def attention(self, layer, x, context, start):
        w, c, n = self.w, self.c, f"layers.{layer}.self_attn"
        dim, heads, kv = c["head_dim"], c["heads"], c["kv_heads"]

        def split(y, count):
            return y.view(len(y), count, dim).transpose(0, 1)

        rows = range(start, start + len(x))
        query = rotate(norm(split(x @ w[f"{n}.q_proj.weight"].T, heads), w[f"{n}.q_norm.weight"]), rows, c["rope"])
        both = torch.cat([context, x])
        key = rotate(
            norm(split(both @ w[f"{n}.k_proj.weight"].T, kv), w[f"{n}.k_norm.weight"]), range(len(both)), c["rope"]
        )
        value = split(both @ w[f"{n}.v_proj.weight"].T, kv)
        out = torch.zeros(len(x), heads * dim, dtype=torch.float64)
        for row in range(len(x)):
            at = start + row
            seen = [
                k for k in range(len(both))
                if (k < start or k <= at or not c["causal"][layer])
                and (c["windows"][layer] is None or at - k < c["windows"][layer])
            ]  # fmt: skip
            for head in range(heads):
                own = head * kv // heads
                scores = key[own, seen] @ query[head, row] / dim**0.5
                out[row, head * dim : (head + 1) * dim] = scores.softmax(0) @ value[own, seen]
        return out @ w[f"{n}.o_proj.weight"].T

    def hidden(self, ids, features):
        """Hidden states of a block ``ids``, (rows,), after a context with features (T, taps · hidden)."""
        w, c = self.w, self.c
        context = norm(features.double() @ w["fc.weight"].T, w["hidden_norm.weight"])
        x = w.get("embed_tokens.weight", self.embedding)[ids] * c.get("embedding_scale", 1)
        for layer in range(c["layers"]):
            n = f"layers.{layer}"
            attend = lambda y, layer=layer: self.attention(layer, y, context, len(features))  # noqa: E731

            def mlp(y, n=n):
                gate = y @ w[f"{n}.mlp.gate_proj.weight"].T
                return (gate * gate.sigmoid() * (y @ w[f"{n}.mlp.up_proj.weight"].T)) @ w[f"{n}.mlp.down_proj.weight"].T

            x = x + self.sublayer(f"{n}.attention_conv", norm(x, w[f"{n}.input_layernorm.weight"]), attend)
            x = x + self.sublayer(f"{n}.mlp_conv", norm(x, w[f"{n}.post_attention_layernorm.weight"]), mlp)
        return norm(x, w["norm.weight"])

    def draft(self, anchor, features, known=(), temperature=0.0, noise=None):
        """Drafted tokens with their probabilities at temperature 1 and trained confidences.

        known: given tokens after the anchor; noise: (count, V), added to the scores divided by the temperature.
        """
        w, c = self.w, self.c
        fill = c["reads"] == "fill"
        block = [anchor, *known, *[c["mask"]] * (c["rows"] - 1 - len(known))]
        h = self.hidden(torch.tensor(block), features)
        count = c["rows"] - fill
        ids = c["ids"] if c.get("ids") is not None else torch.arange(len(self.head))
        state = torch.zeros(c.get("rank") or 1, dtype=torch.float64)
        before, found = anchor, []
        if fill and c.get("markov") == "rnn":
            state = self.markov(anchor, h[0], state)[1]
        for at in range(count):
            row = h[at + fill]
            logits = w.get("lm_head.weight", self.head) @ row
            bias, state = self.markov(before, row, state) if c.get("markov") else (0, state)
            scores, tokens = logits + bias, ids
            if "candidate_selector.predecessor_codebook" in w:
                scores, tokens = self.select(logits, row, before, ids)
            keys = scores if not temperature else scores / temperature + noise[at, tokens]
            best = int(keys.argmax())
            token = known[at] if at < len(known) else int(tokens[best])
            trust = None
            if "confidence_head.proj.weight" in w:
                read = torch.cat([row, w["markov_head.markov_w1.weight"][before]]) if c["with_markov"] else row
                trust = float(
                    torch.sigmoid(w["confidence_head.proj.weight"][0] @ read + w["confidence_head.proj.bias"][0])
                )
            if at >= len(known):
                found.append((token, float(scores.softmax(0)[best]), trust))
            before = token
        return found

    def markov(self, before, row, state):
        w, kind = self.w, self.c["markov"]
        e = w["markov_head.markov_w1.weight"][before]
        if kind == "gated":
            gate = w["markov_head.gate_proj.weight"] @ torch.cat([row, e]) + w["markov_head.gate_proj.bias"]
            e = gate.sigmoid() * e
        if kind == "rnn":
            joint = w["markov_head.joint_proj.weight"] @ torch.cat([state, e, row]) + w["markov_head.joint_proj.bias"]
            gate, new, out = joint.chunk(3)
            state, e = gate.sigmoid() * state + (1 - gate.sigmoid()) * new.tanh(), out.tanh()
        return w["markov_head.markov_w2.weight"] @ e, state

    def select(self, logits, row, before, ids):
        w, c = self.w, self.c
        own = logits * c.get("multiplier", 1)
        if c.get("cap"):
            own = c["cap"] * torch.tanh(own / c["cap"])
        places = own.argsort(descending=True, stable=True)[: c["top"]]
        tokens = ids[places]
        read = w["candidate_selector.predecessor_codebook"][before] * (
            w["candidate_selector.hidden_projection.weight"] @ row
        )
        return own[places] + w["candidate_selector.successor_codebook"][tokens] @ read, tokens
