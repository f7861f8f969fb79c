"""Train a second, smaller model on four ranks and keep what such a run leaves: sharded saves of torch.

The model is the Llama-style decoder of train.py made smaller and cut into modules, as FSDP2 wants it; text, vocabulary
and rotary positions are those of train.py. Four processes on one machine are the ranks. They train with FSDP2, save at
steps 100 and 200, and end. Four others, arranged as 2 x 2 ranks with FSDP2 and tensor parallelism, load step 200, go on
to step 300, and save that moment in two ways. No extent below is a multiple of four but those of the heads, so that
ranks hold pieces of different sizes. Nothing in the project runs this script. It needs torch, and train.py beside it.

    python train_sharded.py             train, and replace run/ and run_log.csv
"""

import csv
import functools
import math
import os
import pathlib
import shutil
import tempfile
import time
import typing

import torch
import train
from torch import distributed, nn
from torch.distributed import checkpoint
from torch.distributed.checkpoint import state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn import functional

RUN_DIR = train.HERE / "run"
LOG_FILE = train.HERE / "run_log.csv"

VOCAB, HIDDEN, INTERMEDIATE, LAYERS = 266, 34, 70, 2
HEADS, KV_HEADS, HEAD_DIM = 4, 2, 8
CONTEXT = 64

RANKS, SEED = 4, 20240301
FIRST_SAVE, SECOND_SAVE, LAST_SAVE = 100, 200, 300
WARM_UP, BATCH, LOG_EVERY, HELD_OUT_WINDOWS = 20, 64, 10, 256
PEAK_LR, LAST_FACTOR, WEIGHT_DECAY, CLIP = 1e-2, 0.1, 0.1, 1.0
FSDP, FSDP_TP = {"dp": RANKS}, {"dp": 2, "tp": 2}

Mesh = dict[str, int]
Row = tuple[int, str, str, str, str]


# --- data ---------------------------------------------------------------------------------------------------------


class Loader:
    """Windows of the stream, in an order that is shuffled anew each epoch, each begun a random bit later.

    Every rank draws the windows of all and takes its own, so a run may go on with another number of ranks. Where the
    loader stands is its epoch and its position; the bit by which windows are shifted comes of torch's generator.
    """

    def __init__(self, stream: torch.Tensor) -> None:
        self.stream = stream
        self.epoch = self.position = 0

    def state_dict(self) -> dict[str, int]:
        """Where the loader stands."""
        return {"epoch": self.epoch, "position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Stand where another loader stood."""
        self.epoch, self.position = state["epoch"], state["position"]

    def draw(self) -> torch.Tensor:
        """The next batch of all ranks, windows one token longer than the context."""
        windows = len(self.stream) // CONTEXT - 2
        if self.position + BATCH > windows:
            self.epoch, self.position = self.epoch + 1, 0
        order = torch.randperm(windows, generator=torch.Generator().manual_seed(SEED + self.epoch))
        chosen = order[self.position : self.position + BATCH] * CONTEXT
        self.position += BATCH
        starts = chosen + torch.randint(CONTEXT, (BATCH,))
        return self.stream[starts[:, None] + torch.arange(CONTEXT + 1)]


def make_streams() -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids to learn from, and those held out; the vocabulary is the beginning of that of train.py."""
    texts = train.read_docstrings()
    learnt = [text for number, text in enumerate(texts) if number % train.HELD_OUT_EVERY]
    tokens = train.make_vocabulary(learnt)[:VOCAB]
    ids = {token: token_id for token_id, token in enumerate(tokens)}
    return train.make_stream(learnt, ids), train.make_stream(texts[:: train.HELD_OUT_EVERY], ids)


# --- model --------------------------------------------------------------------------------------------------------


class Attention(nn.Module):
    """Causal attention with rotary positions; a rank of tensor parallelism has some of the heads."""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj = nn.Linear(HIDDEN, HEADS * HEAD_DIM, bias=False)
        self.k_proj = nn.Linear(HIDDEN, KV_HEADS * HEAD_DIM, bias=False)
        self.v_proj = nn.Linear(HIDDEN, KV_HEADS * HEAD_DIM, bias=False)
        self.o_proj = nn.Linear(HEADS * HEAD_DIM, HIDDEN, bias=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        rotary = make_rotary()
        query, key, value = (
            part(hidden).unflatten(-1, (-1, HEAD_DIM)).transpose(1, 2)
            for part in (self.q_proj, self.k_proj, self.v_proj)
        )
        key, value = (part.repeat_interleave(HEADS // KV_HEADS, dim=1) for part in (train.rotate(key, rotary), value))
        mixed = functional.scaled_dot_product_attention(train.rotate(query, rotary), key, value, is_causal=True)
        return self.o_proj(mixed.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    """SwiGLU."""

    def __init__(self) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(HIDDEN, INTERMEDIATE, bias=False)
        self.up_proj = nn.Linear(HIDDEN, INTERMEDIATE, bias=False)
        self.down_proj = nn.Linear(INTERMEDIATE, HIDDEN, bias=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.down_proj(functional.silu(self.gate_proj(hidden)) * self.up_proj(hidden))


class Layer(nn.Module):
    """Attention and MLP, each after a norm and added to what came in."""

    def __init__(self) -> None:
        super().__init__()
        self.self_attn = Attention()
        self.mlp = Mlp()
        self.input_layernorm = nn.RMSNorm(HIDDEN, train.NORM_EPS)
        self.post_attention_layernorm = nn.RMSNorm(HIDDEN, train.NORM_EPS)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        hidden = hidden + self.self_attn(self.input_layernorm(hidden))
        return hidden + self.mlp(self.post_attention_layernorm(hidden))


class Decoder(nn.Module):
    """Embeddings, layers and the last norm."""

    def __init__(self) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCAB, HIDDEN)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(HIDDEN, train.NORM_EPS)

    def forward(self, token_ids: torch.Tensor) -> torch.Tensor:
        hidden = self.embed_tokens(token_ids)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.norm(hidden)


class Llama(nn.Module):
    """The decoder with its output, under the names of Hugging Face's Llama; the embeddings are not tied."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Decoder()
        self.lm_head = nn.Linear(HIDDEN, VOCAB, bias=False)
        for weight in self.parameters():
            if weight.ndim == 2:
                nn.init.normal_(weight, std=train.INIT_STD)

    def forward(self, token_ids: torch.Tensor) -> torch.Tensor:
        return self.lm_head(self.model(token_ids))


@functools.cache
def make_rotary() -> train.Rotary:
    """Cosines and sines of the rotary positions, as in train.py."""
    frequencies = train.ROPE_THETA ** (-torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)
    angles = torch.outer(torch.arange(CONTEXT), frequencies).repeat(1, 2)
    return angles.cos(), angles.sin()


def distribute(model: Llama, mesh: DeviceMesh) -> None:
    """Cut the parameters over the ranks: over `tp`, if the mesh has that axis, by heads and channels, then over `dp`.

    Between attention and MLP the ranks of `tp` each hold a part of the sequence, and the norms are whole on each.
    """
    if "tp" in mesh.mesh_dim_names:
        whole = PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))
        plan = {
            "model.embed_tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
            "model.norm": SequenceParallel(),
            "lm_head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
        }
        for index in range(LAYERS):
            prefix = f"model.layers.{index}"
            plan |= {f"{prefix}.self_attn": whole, f"{prefix}.mlp": whole}
            plan |= {f"{prefix}.self_attn.{part}_proj": ColwiseParallel() for part in "qkv"}
            plan |= {f"{prefix}.mlp.{part}_proj": ColwiseParallel() for part in ("gate", "up")}
            plan |= {
                f"{prefix}.self_attn.o_proj": RowwiseParallel(output_layouts=Shard(1)),
                f"{prefix}.mlp.down_proj": RowwiseParallel(output_layouts=Shard(1)),
                f"{prefix}.input_layernorm": SequenceParallel(),
                f"{prefix}.post_attention_layernorm": SequenceParallel(),
            }
        parallelize_module(model, mesh["tp"], plan)
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])


# --- training -----------------------------------------------------------------------------------------------------


def rate_factor(step: int) -> float:
    """Linear warm-up, then half a cosine down to the last factor of the peak rate; steps count from 0."""
    if step < WARM_UP:
        return (step + 1) / WARM_UP
    progress = (step - WARM_UP) / (LAST_SAVE - WARM_UP)
    return LAST_FACTOR + (1 - LAST_FACTOR) * (1 + math.cos(math.pi * progress)) / 2


class Run:
    """One rank's view of the run: everything that a save holds, and the steps that change it."""

    def __init__(self, mesh: Mesh) -> None:
        self.words = " ".join(f"{axis}={length}" for axis, length in mesh.items())
        self.mesh = init_device_mesh("cpu", tuple(mesh.values()), mesh_dim_names=tuple(mesh))
        torch.manual_seed(SEED)  # the same on all ranks: each makes the whole model and keeps its part
        self.model = Llama()
        distribute(self.model, self.mesh)
        matrices = [weight for weight in self.model.parameters() if weight.ndim == 2]
        norms = [weight for weight in self.model.parameters() if weight.ndim == 1]
        groups = [{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": norms, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=PEAK_LR, betas=(0.9, 0.98))
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, rate_factor)
        stream, self.held_out = make_streams()
        self.loader = Loader(stream)
        self.step = 0
        self.log: list[Row] = []

    def own(self, windows: torch.Tensor) -> torch.Tensor:
        """Those of all ranks' windows that are this rank's; the ranks of one `tp` group have the same."""
        return windows.chunk(self.mesh["dp"].size())[self.mesh.get_local_rank("dp")]

    def mean(self, loss: torch.Tensor) -> float:
        """The mean of a loss over the ranks of `dp`."""
        total = loss.detach().clone()
        distributed.all_reduce(total, group=self.mesh.get_group("dp"))
        return float(total / self.mesh["dp"].size())

    def loss(self, windows: torch.Tensor) -> torch.Tensor:
        """Mean cross entropy, in nats a token, of this rank's windows."""
        logits = self.model(windows[:, :-1])
        return functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())

    def note(self, loss: str, rate: str, held_out: str) -> None:
        """Add a row to the log."""
        self.log.append((self.step, self.words, loss, rate, held_out))

    def note_held_out(self) -> None:
        """Add the loss of the held-out windows to the log."""
        windows = self.held_out.unfold(0, CONTEXT + 1, CONTEXT)[:HELD_OUT_WINDOWS]
        with torch.no_grad():
            self.note("", "", f"{self.mean(self.loss(self.own(windows))):.4f}")

    def train_until(self, last: int) -> None:
        """Train until a step is done."""
        while self.step < last:
            rate = self.scheduler.get_last_lr()[0]
            loss = self.loss(self.own(self.loader.draw()))
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
            self.optimizer.step()
            self.scheduler.step()
            self.step += 1
            told = self.mean(loss)
            if self.step % LOG_EVERY == 0 or self.step in (1, SECOND_SAVE + 1):
                self.note(f"{told:.4f}", f"{rate:.3e}", "")

    def state(self) -> dict[str, typing.Any]:
        """All that a save holds."""
        model, optim = state_dict.get_state_dict(self.model, self.optimizer)
        return {
            "model": model,
            "optim": optim,
            "scheduler": self.scheduler.state_dict(),
            "train": {"step": self.step},
            "loader": self.loader.state_dict(),
            "rng": {"torch": torch.get_rng_state()},
        }

    def save(self, name: str) -> None:
        """Save as torch.distributed.checkpoint does."""
        checkpoint.save(self.state(), checkpoint_id=f"{RUN_DIR.name}/{name}")

    def save_rank(self, name: str) -> None:
        """Save the parts of the model that this rank holds, in a file of its own."""
        (RUN_DIR / name).mkdir(exist_ok=True)
        torch.save(state_dict.get_model_state_dict(self.model), RUN_DIR / name / f"rank_{distributed.get_rank()}.pt")

    def load(self, name: str) -> None:
        """Go on from a save, whatever the mesh that wrote it."""
        state = self.state()
        checkpoint.load(state, checkpoint_id=f"{RUN_DIR.name}/{name}")
        state_dict.set_state_dict(
            self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"]
        )
        self.scheduler.load_state_dict(state["scheduler"])
        self.loader.load_state_dict(state["loader"])
        self.step = state["train"]["step"]
        torch.set_rng_state(state["rng"]["torch"])


def begin(run: Run) -> None:
    """The first part of the run."""
    run.note_held_out()
    for last in (FIRST_SAVE, SECOND_SAVE):
        run.train_until(last)
        run.note_held_out()
        run.save(f"step-{last}")


def go_on(run: Run) -> None:
    """The second part, in fresh processes on another mesh."""
    run.load(f"step-{SECOND_SAVE}")
    run.note_held_out()
    run.train_until(LAST_SAVE)
    run.note_held_out()
    run.save(f"step-{LAST_SAVE}-fsdp-tp")
    run.save_rank(f"step-{LAST_SAVE}-ranks")


def work(rank: int, store: str, mesh: Mesh, part: typing.Callable[[Run], None]) -> None:
    """One rank of one part of the run."""
    os.chdir(train.HERE)  # a save records the path by which it was asked for: let it be that in the demo
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    run = Run(mesh)
    if rank == 0:
        print(f"{run.words}: {sum(weight.numel() for weight in run.model.parameters())} parameters")
    began = time.monotonic()
    part(run)
    if rank == 0:
        with LOG_FILE.open("a", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(run.log)
        print(f"step {run.step} after {time.monotonic() - began:.0f} s")
    distributed.barrier()
    distributed.destroy_process_group()


def main() -> None:
    """Make the run again."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    shutil.rmtree(RUN_DIR, ignore_errors=True)
    RUN_DIR.mkdir()
    LOG_FILE.write_text("step,mesh,loss,lr,held_out_loss\n", encoding="utf-8", newline="\n")
    with tempfile.TemporaryDirectory() as folder:
        for mesh, part in ((FSDP, begin), (FSDP_TP, go_on)):
            store = pathlib.Path(folder) / part.__name__
            torch.multiprocessing.spawn(work, (str(store), mesh, part), nprocs=RANKS)
    n_bytes = sum(path.stat().st_size for path in RUN_DIR.rglob("*") if path.is_file())
    print(f"{n_bytes} bytes in {RUN_DIR.name}/")


if __name__ == "__main__":
    main()
