// Written by python -m tools.write_constants from d2sd and app.

// Costs of passes of an 8B model on an H200, in one-token passes: published and measured.
export const PAPER = {"name": "H200 (D²SD paper)", "source": "D²SD, arXiv 2606.04446: Qwen3-8B, temperature 0, γ = 16, K = 4, one H200; mean over eight sets of prompts. A step costs α ÷ speedup one-token passes: 1.28 with DFlash, 1.42 with D²SD, 1.56 with EAGLE-3. All other costs are calculated from these. A draft pass costs 0.14: the difference between these steps of D²SD and DFlash. Verifying 16 to 80 nodes costs 1.14: the rest of DFlash’s step. Verifying one node costs 1; costs of 2 to 15 nodes are interpolated. Only ratios are published: times assume one-token passes of 20 ms.", "first_draft": [[1, 0.13922]], "second_draft": [[1, 0.13922]], "verify": [[1, 1.0], [16, 1.13722], [80, 1.13722]], "other": 0.0, "published": {"dflash": 1.27644, "d2sd": 1.41566, "eagle3": 1.55526}, "drafts": {"eagle3": [[1, 0.418041]], "draft_model": null}};
export const MEASURED = {"name": "H200 (measured)", "source": "d2sd bench gpu, 2026-11-26: Qwen3-8B and five-layer drafters with random weights in bfloat16, one NVIDIA H200, captured passes, flashinfer 0.7.2, torch 2.11.", "first_draft": [[1, 0.273608], [16, 0.274818]], "second_draft": [[16, 0.199758], [32, 0.208232], [64, 0.225182], [128, 0.27724]], "verify": [[1, 0.855932], [10, 1.01453], [16, 1.01937], [31, 1.06659], [45, 1.10775], [70, 1.18886], [108, 1.64528]], "other": 0.144068, "published": {}, "drafts": {"eagle3": null, "draft_model": null}};

// Names of methods, by id.
export const METHOD_NAMES = {"autoregressive": "One by one", "draft_model": "Draft model", "eagle3": "EAGLE-3", "dflash": "DFlash", "dflash_resample": "DFlash, resampled", "specdiff2_select": "SpecDiff-2", "ddtree": "DDTree", "d2sd": "D²SD", "d2sd_tree": "D²SD as a tree", "d2sd_three_level": "D²SD, re-drafted twice", "dflash_twice": "D²SD with one drafter", "random_prefix": "D²SD from random prefixes"};

// Fields of links that define a run, and fields that select a place in it.
export const RUN_FIELDS = ["prompt", "model", "method", "block_size", "second_block_size", "num_branches", "node_budget", "draft_depth", "draft_top_k", "cost_aware", "temperature", "top_p", "seed", "chat", "confidence", "max_new_tokens"];
export const PLACE_FIELDS = ["tab", "run", "step", "node", "stage", "present", "chapter", "stop", "quiz", "draft", "beat", "play", "embed", "theme"];

// Numerical settings: symbol or label in texts, and name in a recorded run.
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
