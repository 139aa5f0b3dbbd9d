"""The recorded problems and decisions of the planner: what they are, and how a problem is solved.

problems/NAME.problem.xz is the planner's problem of one model and recipe, as text; decisions.txt has the choice and the
prices that `cleave plan` makes of it, texts/NAME.txt its whole answer for some. `record` writes them, `compare` solves every
problem again.
"""
import concurrent.futures
import lzma
import os
import pathlib
import re
import shlex
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
PROBLEMS, DECISIONS, TEXTS = HERE / "problems", HERE / "decisions.txt", HERE / "texts"
PATIENCE = 600  # seconds for what takes a few

GOLDEN = ("adafactor_tiny", "bert_tiny", "encoder_decoder_tiny", "expert_modules_tiny", "experts_tiny",
          "fairscale_classifier", "gpt2_tiny", "gshard_tiny", "llama_tiny", "lstm_tiny", "mingpt_nano", "mlp", "muon_tiny",
          "resnet_cifar", "unet_tiny")
PRESETS = ("ddp", "zero1", "zero2", "zero3", "zero2-offload", "zero3-offload", "fsdp", "hsdp", "megatron", "megatron-2021", "megatron-sp",
           "gpipe", "ulysses", "ring", "2d", "2.5d", "3d")
ONLY = "--without-alternatives"
# Compared as whole texts: a CPU, a pipeline of GPUs, experts, a split sequence, and ZeRO-3.
WHOLE = ("mlp-cpu", "gpt-39b", "moe-8b-experts", "gpt-1.7b-ring", "gpt-1.7b-zero3")
# name: problem, cluster (a preset, or a file of clusters/) and flags; what takes longest comes first
RECORDS = {
    "gpt-1t": f"gpt-1t h100-80g:8x2048 {ONLY}",
    "gpt-175b": f"gpt-175b a100-80g:8x128 {ONLY}",
    "gpt-39b": f"gpt-39b v100-32g:8x8 {ONLY}",
    "gpt-1t-published": f"gpt-1t a100-80g:8x384 --like megatron-2021 --mesh pp=64,dp=6,tp=8 --zero 0 --recompute full "
                        f"--microbatches 512 --schedule interleaved:2 {ONLY}",
    "gpt-175b-published": f"gpt-175b a100-80g:8x128 --like megatron-2021 --mesh pp=16,dp=8,tp=8 --zero 0 --recompute full "
                          f"--microbatches 128 --schedule 1f1b {ONLY}",
    "gpt-39b-levels": f"gpt-39b levels.yaml {ONLY}",
    "gpt-7.5b-tight": "gpt-7.5b a100-40g:8",
    "gpt-7.5b-loose": "gpt-7.5b h100-80g:8x2",
    "gpt-7.5b-hosts": "gpt-7.5b v100-16g:4 --zero 0",
    "gpt-7.5b-nothing-fits": "gpt-7.5b v100-16g:2",
    "gpt-7.5b-zb-v": f"gpt-7.5b a100-80g:8 --mesh pp=4 --schedule zb-v {ONLY}",
    "gpt-7.5b-interleaved": f"gpt-7.5b a100-80g:8 --mesh pp=4 --schedule interleaved:3 {ONLY}",
    "gpt-7.5b-balance": f"gpt-7.5b a100-80g:8 --balance 9,9,10,10 --recompute selective,none,none,full {ONLY}",
    "gpt-7.5b-split-at": f'gpt-7.5b a100-80g:8 --split-at "/layers.20/ln1/*" --schedule 1f1b --recompute except-last {ONLY}',
    "gpt-7.5b-offload": f"gpt-7.5b a100-40g:4 --offload all {ONLY}",
    "gpt-7.5b-sequence": f"gpt-7.5b a100-80g:8x2 --sequence-parallel --mesh tp=4 --mesh-order tp,dp {ONLY}",
    "gpt-1.7b-v100": "gpt-1.7b v100-16g:8",
    "gpt-1.7b-h100": "gpt-1.7b h100-80g:8x2 --top 12",
    "gpt-1.7b-fp32": "gpt-1.7b-fp32 h100-80g:8",
    "gpt-1.7b-muon": "gpt-1.7b-muon a100-80g:8",
    "gpt-1.3b-32k": "gpt-1.3b-32k h100-80g:8x2",
    "gpt-1.3b-32k-ulysses": f"gpt-1.3b-32k h100-80g:8x2 --like ulysses --mesh cp=8 {ONLY}",
    "moe-8b-tight": "moe-8b v100-32g:8x2",
    "moe-8b-loose": "moe-8b a100-80g:8x4",
    "moe-8b-experts": f"moe-8b a100-80g:8x2 --mesh ep=8 {ONLY}",
    "t5-3b-tight": "t5-3b v100-16g:8x2",
    "t5-3b-loose": "t5-3b a100-80g:8",
    "t5-3b-pipeline": f"t5-3b h100-80g:8 --mesh pp=4 {ONLY}",
    "resnet-50-cpu": "resnet-50 cpu4.yaml",
    "resnet-50-v100": "resnet-50 v100-16g:8",
    "resnet-50-h100": "resnet-50-bf16 h100-80g:8x2",
    "unet-256-cpu": "unet-256 cpu4.yaml",
    "unet-256-tight": "unet-256 v100-16g:2",
    "unet-256-loose": "unet-256 a100-40g:4",
}
RECORDS |= {f"gpt-1.7b-{preset}": f"gpt-1.7b a100-80g:8 --like {preset} {ONLY}" for preset in PRESETS}
RECORDS |= {f"{name}-cpu": f"{name} cpu4.yaml" for name in GOLDEN}
RECORDS |= {f"{name}-a100": f"{name} a100-40g:4 {ONLY}" for name in GOLDEN}
RECORDS |= {f"{name}-tight": f"{name} cpu4-tight.yaml {ONLY}" for name in ("gpt2_tiny", "bert_tiny", "resnet_cifar")}
RECORDS |= {f"gpt2_tiny-{preset}": f"gpt2_tiny cpu4.yaml --like {preset} {ONLY}"
            for preset in PRESETS if preset != "3d" and not preset.endswith("-offload")}
# GPUs with the software of the published runs on them; and some with what a cluster has where it names none.
SOFTWARE = {"v100": "megatron-2021", "a100": "megatron-2021", "h100": "megatron-core-2024"}
RECORDS = {name: re.sub(r"(?<= )(v100|a100|h100)\S*", lambda gpus: f"{gpus[0]},software={SOFTWARE[gpus[1]]}", record)
           for name, record in RECORDS.items()}
RECORDS |= {
    "gpt-175b-cleave": f"gpt-175b a100-80g:8x128 {ONLY}",
    "gpt-39b-cleave": f"gpt-39b v100-32g:8x8 {ONLY}",
    "gpt-7.5b-cleave": "gpt-7.5b a100-40g:8",
    "gpt-1.7b-cleave": "gpt-1.7b h100-80g:8x2",
    "moe-8b-cleave": f"moe-8b a100-80g:8x4 {ONLY}",
    "unet-256-cleave": f"unet-256 a100-40g:4 {ONLY}",
    "gpt2_tiny-cleave": f"gpt2_tiny a100-40g:4 {ONLY}",
    "gpt-1.7b-pytorch": f"gpt-1.7b a100-80g:8,software=pytorch --like fsdp {ONLY}",
}


def solve(build, name):
    """What `cleave plan` answers to the record: its output, or its error and exit status."""
    problem, cluster, *flags = shlex.split(RECORDS[name])
    if cluster.endswith(".yaml"):
        cluster = str(HERE / "clusters" / cluster)
    text = lzma.decompress((PROBLEMS / f"{problem}.problem.xz").read_bytes())
    done = subprocess.run([str(build / "bin" / "cleave"), "plan", "-", "--cluster", cluster, *flags], input=text,
                          capture_output=True, timeout=PATIENCE)
    if done.returncode:
        lines = [line for line in done.stderr.decode().splitlines() if not line.startswith("cleave: search ")]
        return "\n".join(lines) + f"\nexit status {done.returncode}\n"
    return done.stdout.decode()


def solve_all(build, names):
    """Name and answer, as they come; the longest searches begin first."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        running = {pool.submit(solve, build, name): name for name in names}
        for done in concurrent.futures.as_completed(running):
            yield running[done], done.result()
