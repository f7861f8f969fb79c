"""What a training script saved beside the weights: step, scheduler, random state, recognised by their usual names."""

from __future__ import annotations

from collections.abc import Sequence

from tensormorph.model import STATES, Facts, State, StateFact
from tensormorph.readers._pickle_nodes import Value
from tensormorph.readers._torch_tree import Tree
from tensormorph.readers._torchzip import TorchFile
from tensormorph.text import listing, plural, printable

# Source: habits of training scripts; torch, Lightning, timm, fairseq, Transformers Trainer, accelerate.
KEYS: dict[State, tuple[str, ...]] = {
    "hyperparameters": ("optimizer", "optimizers", "optimizer_states", "optimizer_state_dict", "optim", "param_groups"),
    "scheduler": ("scheduler", "lr_scheduler", "lr_schedulers", "lr_scheduler_state_dict", "scheduler_state_dict"),
    "scaler": ("scaler", "grad_scaler", "amp", "amp_scaler", "native_amp_scaling_state"),
    "step": ("global_step", "step", "iteration", "iter", "steps", "num_updates"),
    "data_position": (
        "loops",
        "dataloader",
        "loader",
        "data_loader",
        "train_loader",
        "train_dataloader",
        "sampler",
        "data_state",
        "train_iterator",
        "consumed_samples",
    ),
    "rng": ("rng", "rng_state", "rng_states", "random_rng_state", "cuda_rng_state", "torch_rng_state", "rng_state_cpu"),
    "config": ("args", "config", "cfg", "hparams", "hyper_parameters", "model_args"),
}
MOMENTS = ("exp_avg", "exp_avg_sq", "momentum_buffer", "square_avg", "max_exp_avg_sq", "acc_delta", "sum")


def training_facts(files: Sequence[tuple[TorchFile, Tree]], n_tensors: int) -> Facts:
    """Return what the top-level names and optimizer slots of all files tell, each with its evidence."""
    top: dict[str, tuple[str, Value]] = {}
    for file, tree in files:
        for name, value in tree.top.items():
            top.setdefault(name, (file.name, value))
    states: dict[State, StateFact] = dict.fromkeys(STATES, StateFact("no", "no part of the saved object is called so"))
    slots = [t for _, tree in files for t in tree.tensors if t.key.slot]
    weights = [t for _, tree in files for t in tree.tensors if not t.key.slot]
    if weights:
        states["weights"] = StateFact("yes", f"{plural(len(weights), 'name')} of tensors outside optimizer state")
    moments = [t for t in slots if t.key.slot in MOMENTS]
    if moments:
        unnamed = "" if all(t.key.named for t in moments) else ", by number: the file records no parameter names"
        states["moments"] = StateFact(
            "yes", f"{plural(len(moments), 'tensor')} such as {printable(moments[0].name)}{unnamed}"
        )
    for state, keys in KEYS.items():
        held = [name for name in top if name.lower() in keys]
        if held:
            states[state] = StateFact("yes", f"{listing(held)} in {printable(top[held[0]][0])}")
    step = evidence = None
    for key in KEYS["step"]:
        found = top.get(key)
        if found is not None and type(found[1]) is int and 0 <= found[1] < 1 << 60:
            step, evidence = found[1], f"{key} in {printable(found[0])}"
            break
    version = top.get("pytorch-lightning_version", ("", None))[1]
    software = f"Lightning {printable(version, 40)}" if isinstance(version, str) else None
    kinds = {file.container for file, _ in files}
    if software is None and "zip" in kinds:
        software = "torch.save (zip)"
    elif software is None and "stream" in kinds:
        software = "torch.save before 1.6, or without zip"
    return Facts(
        None,
        "torch.save files have no commit marker",
        step,
        evidence or "nothing records a step",
        None,
        software,
        states,
    )
