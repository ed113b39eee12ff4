// Written by python -m tools.write_constants from d2sd and app.

// Known machines and what passes cost on them, in steps of plain decoding.
export const MACHINES = [
  {"id": "paper", "name": "H200 (D²SD paper)", "source": "D²SD, arXiv 2606.04446: Qwen3-8B, temperature 0, γ = 16, K = 4, one H200; mean of eight sets of prompts. A step costs α ÷ speedup plain steps: 1.28 with DFlash, 1.42 with D²SD, 1.56 with EAGLE-3. All others are calculated from these: a draft pass as 0.14, what D²SD costs more than DFlash; verifying 16 to 80 nodes as 1.14, the rest of DFlash’s step; fewer nodes in proportion.", "kind": "published", "milliseconds": null, "first_draft": [[1, 0.13922]], "second_draft": [[1, 0.13922]], "verify": [[1, 1.0], [16, 1.13722], [80, 1.13722]], "other": 0.0, "published": {"dflash": 1.27644, "d2sd": 1.41566, "eagle3": 1.55526}, "drafts": {"eagle3": [[1, 0.418041]], "draft_model": null}},
  {"id": "h200-measured", "name": "H200 (measured)", "source": "d2sd bench gpu, 2026-11-26: Qwen3-8B and five-layer drafters with random weights in bfloat16, one NVIDIA H200, captured passes, flashinfer 0.7.2, torch 2.11.", "kind": "measured", "milliseconds": 8.26, "first_draft": [[1, 0.273608], [16, 0.274818]], "second_draft": [[16, 0.199758], [32, 0.208232], [64, 0.225182], [128, 0.27724]], "verify": [[1, 0.855932], [10, 1.01453], [16, 1.01937], [31, 1.06659], [45, 1.10775], [70, 1.18886], [108, 1.64528]], "other": 0.144068, "published": {}, "drafts": {"eagle3": null, "draft_model": null}},
  {"id": "laptop-cpu", "name": "Laptop CPU (Ryzen 7 7840U)", "source": "Calculated, not measured: Qwen3-8B with five-layer drafters in bfloat16, every pass as long as reading its weights or as its arithmetic takes, whichever is longer, by the data sheet. 120 GB/s, 0.84 TFLOPS: AMD, Ryzen 7 7840U: LPDDR5X-7500 at 128 bits; 8 cores at 3.3 GHz, two 8-wide float32 products and sums a cycle.", "kind": "calculated", "milliseconds": 127.393, "first_draft": [[1, 0.219974], [7, 0.219974], [8, 0.248411], [4096, 127.187]], "second_draft": [[1, 0.219974], [7, 0.219974], [8, 0.248411], [4096, 127.187]], "verify": [[1, 1.0], [7, 1.0], [8, 1.12514], [4096, 576.071]], "other": 0.0, "published": {}, "drafts": {"eagle3": [[2, 0.0742428], [3, 0.148486]], "draft_model": [[2, 0.085654], [3, 0.171308]]}},
  {"id": "laptop-gpu", "name": "Laptop GPU (RTX 5090 Laptop)", "source": "Calculated, not measured: Qwen3-8B with five-layer drafters in bfloat16, every pass as long as reading its weights or as its arithmetic takes, whichever is longer, by the data sheet. 896 GB/s, 114 TFLOPS: NVIDIA, GeForce RTX 5090 Laptop GPU: GDDR7 at 28 Gbit/s and 256 bits; 1,824 TOPS at 4 bits with sparsity, a sixteenth of it.", "kind": "calculated", "milliseconds": 17.2776, "first_draft": [[1, 0.21896], [127, 0.21896], [128, 0.21896], [4096, 6.95124]], "second_draft": [[1, 0.21896], [127, 0.21896], [128, 0.21896], [4096, 6.95124]], "verify": [[1, 1.0], [127, 1.0], [128, 1.0], [4096, 31.4892]], "other": 0.0, "published": {}, "drafts": {"eagle3": [[2, 0.0522317], [3, 0.104463]], "draft_model": [[2, 0.0943068], [3, 0.188614]]}},
  {"id": "rtx-4090", "name": "RTX 4090", "source": "Calculated, not measured: Qwen3-8B with five-layer drafters in bfloat16, every pass as long as reading its weights or as its arithmetic takes, whichever is longer, by the data sheet. 1,008 GB/s, 165 TFLOPS: NVIDIA, Ada GPU Architecture, appendix A.", "kind": "calculated", "milliseconds": 15.3819, "first_draft": [[1, 0.218835], [163, 0.218835], [164, 0.218835], [4096, 5.38865]], "second_draft": [[1, 0.218835], [163, 0.218835], [164, 0.218835], [4096, 5.38865]], "verify": [[1, 1.0], [163, 1.0], [164, 1.0], [4096, 24.4122]], "other": 0.0, "published": {}, "drafts": {"eagle3": [[2, 0.0521936], [3, 0.104387]], "draft_model": [[2, 0.0953732], [3, 0.190746]]}},
  {"id": "h100", "name": "H100 SXM", "source": "Calculated, not measured: Qwen3-8B with five-layer drafters in bfloat16, every pass as long as reading its weights or as its arithmetic takes, whichever is longer, by the data sheet. 3,350 GB/s, 989 TFLOPS: NVIDIA, H100 Tensor Core GPU Datasheet.", "kind": "calculated", "milliseconds": 4.77934, "first_draft": [[1, 0.216309], [295, 0.216309], [296, 0.216309], [4096, 2.90097]], "second_draft": [[1, 0.216309], [295, 0.216309], [296, 0.216309], [4096, 2.90097]], "verify": [[1, 1.0], [295, 1.0], [296, 1.0], [4096, 13.1562]], "other": 0.0, "published": {}, "drafts": {"eagle3": [[2, 0.0514221], [3, 0.102844]], "draft_model": [[2, 0.116934], [3, 0.233868]]}},
  {"id": "h200", "name": "H200 SXM", "source": "Calculated, not measured: Qwen3-8B with five-layer drafters in bfloat16, every pass as long as reading its weights or as its arithmetic takes, whichever is longer, by the data sheet. 4,800 GB/s, 989 TFLOPS: NVIDIA, H200 Tensor Core GPU Datasheet.", "kind": "calculated", "milliseconds": 3.40083, "first_draft": [[1, 0.214824], [206, 0.214824], [207, 0.214824], [4096, 4.07686]], "second_draft": [[1, 0.214824], [206, 0.214824], [207, 0.214824], [4096, 4.07686]], "verify": [[1, 1.0], [206, 1.0], [207, 1.0], [4096, 18.489]], "other": 0.0, "published": {}, "drafts": {"eagle3": [[2, 0.0509685], [3, 0.101937]], "draft_model": [[2, 0.129613], [3, 0.259227]]}},
  {"id": "space", "name": "Spaces (RTX Pro 6000 Blackwell)", "source": "Calculated, not measured: Qwen3-8B with five-layer drafters in bfloat16, every pass as long as reading its weights or as its arithmetic takes, whichever is longer, by the data sheet. 1,792 GB/s, 504 TFLOPS: NVIDIA, RTX Blackwell PRO GPU Architecture; the card of ZeroGPU by the documentation of Hugging Face Spaces, used whole.", "kind": "calculated", "milliseconds": 8.7468, "first_draft": [[1, 0.217972], [281, 0.217972], [282, 0.217972], [4096, 3.10967]], "second_draft": [[1, 0.217972], [281, 0.217972], [282, 0.217972], [4096, 3.10967]], "verify": [[1, 1.0], [281, 1.0], [282, 1.0], [4096, 14.0939]], "other": 0.0, "published": {}, "drafts": {"eagle3": [[2, 0.0519298], [3, 0.10386]], "draft_model": [[2, 0.102746], [3, 0.205492]]}},
];

// What methods are called, by id.
export const METHOD_NAMES = {"autoregressive": "Plain decoding", "draft_model": "Draft model", "eagle3": "EAGLE-3", "dflash": "DFlash", "dflash_resample": "DFlash, resampled", "specdiff2_select": "SpecDiff-2", "ddtree": "DDTree", "d2sd": "D²SD", "d2sd_tree": "D²SD as a tree", "d2sd_three_level": "D²SD, re-drafted twice", "dflash_twice": "D²SD with one drafter", "random_prefix": "D²SD from random prefixes"};

// Fields of addresses: what asks for a run again, and where to look in one.
export const RUN_FIELDS = ["prompt", "model", "method", "block_size", "second_block_size", "num_branches", "node_budget", "draft_depth", "draft_top_k", "cost_aware", "temperature", "top_p", "seed", "chat", "confidence", "max_new_tokens"];
export const PLACE_FIELDS = ["tab", "run", "step", "node", "stop", "quiz", "draft", "beat", "play", "embed", "theme"];

// Settings that are numbers: how a text calls them, and their names in a recorded run.
export const SETTINGS = [
  ["γ", "block_size"],
  ["γ₂", "second_block_size"],
  ["K", "num_branches"],
  ["B", "node_budget"],
  ["depth", "draft_depth"],
  ["top k", "draft_top_k"],
  ["T", "temperature"],
  ["top-p", "top_p"],
  ["seed", "seed"],
];

// What the controls of settings mean, by their labels.
export const MEANINGS = [
  ["Max tokens", "maximum number of generated tokens"],
  ["Block γ", "tokens in a drafted block, including the anchor; auto: as the drafter was trained, which is also the maximum"],
  ["Block γ₂", "the same for the second drafter; auto: as γ"],
  ["Branches K", "number of likely boundaries to re-draft from"],
  ["Nodes B", "maximum number of drafted nodes verified (node counts are one higher, with the anchor); auto: all, or 64 for methods that grow trees"],
  ["Depth", "eagle3: passes after the first one, each of which adds a level to its tree"],
  ["Top k", "eagle3: nodes kept per level, and children of each"],
  ["Quickest here", "cost-aware: draft and verify only what is expected to save time here; γ, K and B become upper limits. Full tree: all that these settings draft"],
  ["Temperature", "0: the target’s likeliest token; above 0: sampled from its probabilities"],
  ["Top-p", "sample only from the likeliest tokens with this total probability"],
  ["Seed", "of all sampling: the same seed gives the same text"],
  ["Chat template", "put the prompt into the target’s chat template"],
  ["Confidence", "what predicts the rejection of the first draft. Softmax: its tokens’ probabilities. Head: a trained confidence head, for drafters that have one"],
];
