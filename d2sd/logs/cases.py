"""Public cases: things to try against low acceptance, and the published α of known drafters."""

from __future__ import annotations

# Things to try, each with a public case.
TRIES = {
    "convention": "Anchor convention (fill or next): with the wrong one, under 1% of a DSpark drafter's tokens were accepted (vLLM issue 56792).",
    "quantised drafter": "Quantisation of the drafter: SGLang quantises it like the target by default; acceptance fell to 0 (SGLang pull request 35629).",
    "tokenizer": "Mask token, tokenizer and target of the drafter: `d2sd doctor TARGET DRAFTER` tests them.",
    "taps": "Taps that are off by one layer: 5.6 instead of 6.6 accepted tokens (Avarok-Cybersecurity/atlas pull request 394; vLLM pull request 42704).",
    "thinking": "Thinking on or off, as in training: the acceptance rate of Qwen3-8B was 25% with thinking and 60% without (z-lab/dflash issue 133); for "
    "Qwen3.5-35B-A3B, it was higher with thinking (issue 60).",
    "template": "Chat template: EAGLE-3 drafters for Llama 3.3 have fewer tokens accepted without it (TensorRT-LLM pull request 4802).",
    "language": "Language and domain of the texts: α was 6.4 in English and 3.3 in Chinese (z-lab/dflash issue 7).",
    "engine": "Another engine: the accepted length was 3 in llama.cpp and 5.5 in vLLM (z-lab/dflash issue 170). If the log has token "
    "ids, `d2sd whatif LOG --served` compares the server's steps with a local run of the drafter.",
    "window": "Sliding-window layers that run as full attention: acceptance ended at position 2 to 5 of 15 in texts longer than the "
    "window (AEON-7/Qwen3.6-27B-AEON-Ultimate-Uncensored-DFlash issue 6; vLLM pull request 40898).",
    "position": "Position ids of the draft: one too low, acceptance fell from 0.8 in short texts to 0.22 after 12,000 tokens (ik_llama.cpp pull request 2296).",
    "block": "More drafted tokens than in training: with 7 instead of 5, the acceptance rate fell from 35% to 4% (vLLM pull request 41834).",
    "handover": "Prompts are processed on another server: check that the drafter receives its KV cache or the target's hidden states of the prompt "
    "(vllm-ascend issue 13665; SGLang issues 7927 and 34285).",
    "full": "Fewer requests at once, a larger KV cache, or no drafts: compare tokens/s over all requests (vLLM issue 43295).",
    "busy": "The same load without drafts, and with fewer drafted tokens: compare tokens/s over all requests.",
    "replica": "Weights and settings of the drafter on that engine, and whether it gets other kinds of text.",
    "drafter fails": "Context size, KV cache and memory of the drafter.",
    "first only": "The drafter's state after its first token: hidden states, norms, attention mask of the block (DSpark: vLLM issue 51009; DFlash: "
    "vllm-project/speculators issue 613).",
}  # fmt: skip

# Published α by a part of the drafter's name: (α, drafted tokens per step, texts, source).
PUBLISHED = {
    "llama-3.1-8b-instruct-speculator.eagle3": (2.60, 3, "MT-bench", "vLLM's tests of acceptance length"),
    "qwen3-8b-speculator.eagle3": (2.26, 3, "MT-bench", "vLLM's tests of acceptance length"),
    "gpt-oss-20b-speculator.eagle3": (2.56, 3, "MT-bench", "vLLM's tests of acceptance length"),
    "eagle3-llama3.1-instruct-8b": (3.53, 7, "MT-bench", "vLLM issue 26191"),
    "eagle3-qwen3-235b-a22b-instruct-2507": (3.18, 7, "MT-bench at temperature 1", "its model card"),
    "qwen3-8b-dflash-b16": (6.96, 15, "GSM8K", "D²SD, arXiv 2606.04446"),
    "qwen3.5-4b-dflash": (6.75, 15, "GSM8K", "its model card, quoted in vLLM issue 49730"),
}


def published_alpha(*names: str | None) -> list[str]:
    """Returns a sentence about the published α of the drafter with one of these names; none if no α is known."""
    return [
        f"Published for {part}: α {alpha:.2f} with {drafted} drafted tokens per step on {texts} ({source})."
        for part, (alpha, drafted, texts, source) in PUBLISHED.items()
        if any(part in name.lower() for name in names if name)
    ][:1]
