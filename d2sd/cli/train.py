"""Train a target and its drafters. Every stage resumes where it stopped when the same command is run again."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from pathlib import Path

from d2sd.cli.common import ended_at_once
from d2sd.errors import InputError
from d2sd.train.loop import TRACKERS

RECIPES = {"smollm2": "d2sd.train.smollm2"}  # modules by name; each has run(target, prompts, out)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``train`` and its stages."""
    stages = parser.add_subparsers(
        dest="stage", required=True, metavar="target|questions|regenerate|dflash|vp|dspark|eagle3|recipe"
    )
    target = stages.add_parser("target", help="small Qwen3-type model from text")
    target.add_argument(
        "--data", nargs="+", required=True, metavar="FILE", help=".txt, .jsonl (field text) or hub data set"
    )
    target.add_argument("--held-out", nargs="+", required=True, metavar="FILE", help="text for the held-out loss")
    target.add_argument("--row-length", type=int, default=384)
    for name, default in (("vocab-size", 4096), ("hidden-size", 192), ("layers", 16), ("heads", 3), ("kv-heads", 1),
                          ("head-dim", 64), ("intermediate-size", 512), ("max-positions", 2048)):  # fmt: skip
        target.add_argument(f"--{name}", type=int, default=default)
    _add_loop(target, steps=1300, batch_size=12)
    target.add_argument("--compile", action="store_true", help="torch.compile (needs a C++ compiler on CPU)")
    asked = stages.add_parser("questions", help="a chat model writes what its users would ask")
    asked.add_argument("--target", required=True, metavar="FOLDER|HUB-ID|NAME")
    asked.add_argument("--out", type=Path, required=True, metavar="FILE.jsonl")
    asked.add_argument("--count", type=int, default=1000, metavar="N", help="questions tried; repeats are left out")
    asked.add_argument("--first-words", nargs="+", default=[""], metavar="TEXT", help="beginnings, taken in turn")
    asked.add_argument("--batch-size", type=int, default=64)
    asked.add_argument("--max-new-tokens", type=int, default=80)
    asked.add_argument("--temperature", type=float, default=0.9)
    asked.add_argument("--top-k", type=int, default=50)
    asked.add_argument("--seed", type=int, default=0, help="default 0")
    asked.add_argument("--dtype", choices=["float32", "mixed", "bfloat16", "float16"], help=DTYPE)
    again = stages.add_parser("regenerate", help="the target writes the responses to prompts")
    again.add_argument("--target", required=True, metavar="FOLDER|HUB-ID|NAME")
    again.add_argument("--prompts", type=Path, nargs="+", required=True, metavar="FILE.jsonl", help="lines with prompt")
    again.add_argument("--chat", action="store_true", help="put prompts into the target's chat template")
    again.add_argument("--out", type=Path, required=True, metavar="FILE.jsonl")
    again.add_argument("--batch-size", type=int, default=64)
    again.add_argument("--max-new-tokens", type=int, default=160)
    again.add_argument("--greedy-share", type=float, default=0.75)
    again.add_argument("--temperature", type=float, default=0.7)
    again.add_argument("--dtype", choices=["float32", "mixed", "bfloat16", "float16"], help=DTYPE)
    for name in ("dflash", "vp"):
        drafter = stages.add_parser(name, help=f"{name} drafter from the target's responses")
        drafter.add_argument("--target", required=True, metavar="FOLDER|HUB-ID|NAME")
        drafter.add_argument("--responses", type=Path, required=True, metavar="FILE.jsonl")
        drafter.add_argument(
            "--start", type=Path, metavar="FOLDER", help="drafter to begin from (default: target's last layers)"
        )
        drafter.add_argument("--layers", type=int, help="layers of a new drafter (default 2)")
        drafter.add_argument(
            "--block-size", type=int, metavar="G", help="γ of a new drafter, anchor included (default 16)"
        )
        drafter.add_argument(
            "--target-layers", type=int, nargs="+", metavar="N", help="tapped layers (default: evenly spaced)"
        )
        drafter.add_argument(
            "--mask-token", metavar="TEXT", help="an unused token (default: the tokenizer's mask token)"
        )
        drafter.add_argument(
            "--cache",
            type=Path,
            metavar="FILE",
            help="keep the target's features here: for small targets, several drafters",
        )
        drafter.add_argument("--max-length", type=int, default=1024, metavar="N", help="cut sequences to N tokens")
        drafter.add_argument(
            "--own-tokens",
            action="store_true",
            help="loss over the tokens of the responses alone: faster; train the last steps without it",
        )
        drafter.add_argument(
            "--draft-vocab-size",
            type=int,
            metavar="D",
            help="draft the responses' D most frequent tokens only (default: all)",
        )
        drafter.add_argument(
            "--markov-rank",
            type=int,
            default=0,
            metavar="R",
            help="add DSpark's Markov head of this rank (default: none)",
        )
        drafter.add_argument("--anchors", type=int, default=20, help="blocks per sequence and step")
        drafter.add_argument("--objective", default="cross_entropy", help="cross_entropy, survival or streak")
        drafter.add_argument("--soft-targets", type=float, default=0.0, metavar="SHARE")
        drafter.add_argument("--decay", type=float, default=7.0, metavar="TAU")
        drafter.add_argument("--beta", type=float, default=0.9, help="visible-prefix prior (vp)")
        _add_loop(drafter, steps=1200, batch_size=12)
        _add_checks(drafter)
    dspark = stages.add_parser("dspark", help="DSpark's Markov and confidence heads on a DFlash drafter")
    dspark.add_argument("--target", required=True, metavar="FOLDER|HUB-ID")
    dspark.add_argument("--responses", type=Path, required=True, metavar="FILE.jsonl")
    dspark.add_argument("--start", type=Path, required=True, metavar="FOLDER", help="the DFlash drafter")
    dspark.add_argument("--markov", default="vanilla", metavar="KIND", help="vanilla, gated or rnn")
    dspark.add_argument("--rank", type=int, default=64, metavar="R")
    dspark.add_argument("--max-length", type=int, default=1024, metavar="N", help="cut sequences to N tokens")
    dspark.add_argument("--anchors", type=int, default=12, help="blocks per sequence and step")
    dspark.add_argument("--cache", type=Path, metavar="FILE", help="keep the target's features here (small targets)")
    _add_loop(dspark, steps=600, batch_size=8)
    eagle3 = stages.add_parser("eagle3", help="EAGLE-3 drafter from the target's responses")
    eagle3.add_argument("--target", required=True, metavar="FOLDER|HUB-ID|NAME")
    eagle3.add_argument("--responses", type=Path, required=True, metavar="FILE.jsonl")
    eagle3.add_argument(
        "--target-layers", type=int, nargs="+", metavar="N", help="tapped layers (default: 1, L/2 - 1, L - 4)"
    )
    eagle3.add_argument("--draft-vocab-size", type=int, metavar="D", help="most frequent tokens only (default: all)")
    eagle3.add_argument("--max-length", type=int, default=1024, metavar="N", help="cut sequences to N tokens")
    eagle3.add_argument("--unrolled", type=int, default=7, metavar="N", help="steps of training-time test")
    eagle3.add_argument("--decay", type=float, default=0.8, help="weight of unrolled step i is this to the power i")
    eagle3.add_argument("--rows", type=int, default=32, help="unrolled rows per sequence and step")
    eagle3.add_argument("--cache", type=Path, metavar="FILE", help="keep the target's features here (small targets)")
    _add_loop(eagle3, steps=1500, batch_size=12)
    _add_checks(eagle3)
    recipe = stages.add_parser("recipe", help="all stages for a known target, one after the other")
    recipe.add_argument("name", choices=list(RECIPES))
    recipe.add_argument("--target", metavar="FOLDER|HUB-ID", help="default: what `d2sd get NAME` fetched")
    recipe.add_argument("--prompts", type=Path, nargs="*", default=[], metavar="FILE.jsonl", help="further questions")
    recipe.add_argument("--out", type=Path, metavar="FOLDER", help="default: runs/NAME")


DTYPE = "default: float32, and mixed (weights in float16) for a target of 50 million parameters or more on a CPU"


def _add_loop(parser: argparse.ArgumentParser, steps: int, batch_size: int) -> None:
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--steps", type=int, default=steps, help="may be raised when the command is run again")
    parser.add_argument("--batch-size", type=int, default=batch_size, help="rows per process and micro-step")
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    parser.add_argument("--warmup", type=int, default=60)
    parser.add_argument("--optimizer", default="muon", help="muon or adamw")
    parser.add_argument(
        "--precision",
        default="auto",
        help="float32, bfloat16 (autocast), or auto: what this machine multiplies quickly",
    )
    parser.add_argument("--save-every", type=int, default=200, help="steps between checkpoints to resume from")
    parser.add_argument(
        "--report-to", default="none", choices=TRACKERS, help="show metrics there, beside metrics.jsonl"
    )
    parser.add_argument("--seed", type=int, default=0, help="default 0")


def _add_checks(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--keep-every", type=int, default=0, metavar="N", help="keep a drafter in OUT/step-N every N steps"
    )
    parser.add_argument(
        "--held-out", type=Path, metavar="FILE.jsonl", help="lines with prompt: at every save, how much of the target's "
        "greedy answers the drafter would have saved"
    )  # fmt: skip
    parser.add_argument("--chat", action="store_true", help="put held-out prompts into the target's chat template")


def run(arguments: argparse.Namespace) -> int:
    """Run one stage; Ctrl-C says how to go on."""
    try:
        _run(arguments)
    except KeyboardInterrupt:
        print("stopped; the same command goes on from what was saved last", file=sys.stderr)
        return 130
    return 0


def _run(arguments: argparse.Namespace) -> None:
    from d2sd.train import stages
    from d2sd.train.data import read_documents, read_jsonl, write_jsonl
    from d2sd.train.drafters import DrafterConfig
    from d2sd.train.dspark import DSparkConfig, train_dspark
    from d2sd.train.eagle3 import Eagle3Objective, train_eagle3
    from d2sd.train.loop import LoopConfig
    from d2sd.train.questions import write_questions
    from d2sd.train.regenerate import RegenerateConfig
    from d2sd.train.target import TargetShape

    a = arguments
    if a.stage == "recipe":
        return import_module(RECIPES[a.name]).run(a.target or a.name, a.prompts, a.out or Path("runs") / a.name)
    if a.stage == "regenerate":
        config = RegenerateConfig(a.batch_size, a.max_new_tokens, a.greedy_share, a.temperature)
        for path in a.prompts:
            if not path.is_file():
                raise InputError(f"there is no prompt file {path}")
        prompts = [row["prompt"] for path in a.prompts for row in read_jsonl(path, "prompt")]
        empty, answers = stages.regenerate_responses(a.target, prompts, a.out, config, a.dtype, a.chat)
        print(f"{answers} answers: {a.out}. {ended_at_once(empty, answers, a.chat)}".rstrip())
        return None
    if a.stage == "questions":
        config = RegenerateConfig(a.batch_size, a.max_new_tokens, 0.0, a.temperature, a.top_k, a.seed)
        found = write_questions(stages.load_writer(a.target, a.dtype), a.first_words, a.count, config)
        write_jsonl(a.out, ({"prompt": text} for text in found))
        return print(f"{len(found)} different questions of {a.count} tried: {a.out}")
    loop = LoopConfig(
        steps=a.steps, batch_size=a.batch_size, accumulate=a.accumulate, learning_rate=a.learning_rate, warmup=a.warmup,
        optimizer=a.optimizer, precision=a.precision, save_every=a.save_every, seed=a.seed, report_to=a.report_to,
        keep_every=getattr(a, "keep_every", 0), compile=a.stage == "target" and a.compile,
    )  # fmt: skip
    if a.stage == "target":
        documents, held = ([d for f in files for d in read_documents(f)] for files in (a.data, a.held_out))
        shape = TargetShape(
            a.vocab_size, a.hidden_size, a.layers, a.heads, a.kv_heads, a.head_dim, a.intermediate_size, a.max_positions
        )
        return stages.train_target(documents, held, a.out, shape, loop, a.row_length)
    if not a.responses.is_file():
        raise InputError(f"there is no response file {a.responses}; write one with `python -m d2sd train regenerate`")
    if a.stage == "dspark":
        heads = DSparkConfig(a.markov, a.rank, anchors=a.anchors)
        return train_dspark(
            a.target, a.responses, a.out, a.start, objective=heads, config=loop, max_length=a.max_length, cache=a.cache
        )
    if a.stage == "eagle3":
        return train_eagle3(
            a.target, a.responses, a.out, objective=Eagle3Objective(a.unrolled, a.decay, a.rows), config=loop,
            draft_vocab_size=a.draft_vocab_size, target_layer_ids=a.target_layers, max_length=a.max_length,
            cache=a.cache, held_out=a.held_out, chat=a.chat,
        )  # fmt: skip
    objective = DrafterConfig(a.stage == "vp", a.anchors, a.beta, a.decay, a.objective, a.soft_targets)
    return stages.train_drafter(
        a.target, a.responses, a.out, objective=objective, config=loop, layers=a.layers, block_size=a.block_size,
        target_layer_ids=a.target_layers, mask_token=a.mask_token, start=a.start, max_length=a.max_length,
        cache=a.cache, own_tokens=a.own_tokens, draft_vocab_size=a.draft_vocab_size, markov_rank=a.markov_rank,
        held_out=a.held_out, chat=a.chat,
    )  # fmt: skip
