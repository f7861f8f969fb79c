"""Train the demo checkpoint and write it as a sharded safetensors set.

The model is a small Llama-style decoder: RMSNorm, rotary positions, grouped-query attention, SwiGLU and one matrix
shared by the input and the output embeddings. It learns the docstrings of the Python standard library of the
interpreter that runs this script. Nothing in the project runs it: it is kept beside its result to show where that
result comes from. It needs torch and safetensors.

    python train.py                     train and replace llama-docstrings/ and training_log.csv
    python train.py --sample "Return"   let the stored checkpoint go on from a prompt
"""

import argparse
import ast
import collections
import csv
import json
import math
import pathlib
import platform
import re
import sysconfig
import time

import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional

HERE = pathlib.Path(__file__).resolve().parent
SET_DIR = HERE / "llama-docstrings"
LOG_FILE = HERE / "training_log.csv"

VOCAB, HIDDEN, INTERMEDIATE, LAYERS = 512, 128, 352, 5
HEADS, KV_HEADS, HEAD_DIM = 4, 2, 32
CONTEXT, ROPE_THETA, NORM_EPS, INIT_STD = 256, 10000.0, 1e-5, 0.02
BOS, EOS, SPECIALS = 0, 1, ["<s>", "</s>"]

SEED, THREADS = 20240229, 2
STEPS, WARM_UP, BATCH, LOG_EVERY = 1400, 100, 12, 10
PEAK_LR, LAST_LR, WEIGHT_DECAY, CLIP = 4e-3, 2e-4, 0.8, 1.0
HELD_OUT_EVERY = 20

SHARDS, SHARD_LIMIT = 4, 600_000
FLOAT32_NAMES = re.compile(r"embed_tokens|norm")

SKIPPED_FOLDERS = {"site-packages", "test", "tests", "idlelib", "lib2to3", "pydoc_data", "turtledemo", "ensurepip"}
PIECES = re.compile(r" ?[A-Za-z]+|\n+ *|  +|.", re.DOTALL)

LAYER_PARTS = [
    *(f"self_attn.{part}_proj" for part in "qkvo"),
    *(f"mlp.{part}_proj" for part in ("gate", "up", "down")),
    "input_layernorm",
    "post_attention_layernorm",
]

Weights = dict[str, torch.Tensor]
Rotary = tuple[torch.Tensor, torch.Tensor]


# --- text ---------------------------------------------------------------------------------------------------------


def read_docstrings() -> list[str]:
    """Every different docstring of the standard library, in the order of its files and of the code in them."""
    root = pathlib.Path(sysconfig.get_paths()["stdlib"])
    found: dict[str, None] = {}
    for path in sorted(root.rglob("*.py"), key=lambda path: path.relative_to(root).parts):
        if SKIPPED_FOLDERS.intersection(path.relative_to(root).parts):
            continue
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node)
                if text:
                    found[text] = None
    return list(found)


def make_vocabulary(texts: list[str]) -> list[str]:
    """Two specials, the 256 bytes, and the pieces that save the most tokens over writing them byte by byte."""
    counts = collections.Counter(piece for text in texts for piece in PIECES.findall(text))
    savings = {piece: count * (len(piece.encode()) - 1) for piece, count in counts.items() if len(piece.encode()) > 1}
    best = sorted(savings, key=lambda piece: (-savings[piece], piece))
    tokens = SPECIALS + [f"<0x{byte:02X}>" for byte in range(256)]
    return tokens + best[: VOCAB - len(tokens)]


def encode(text: str, ids: dict[str, int]) -> list[int]:
    """Token ids of a text: one for a known piece, else one for each of its bytes."""
    result: list[int] = []
    for piece in PIECES.findall(text):
        if piece in ids:
            result.append(ids[piece])
        else:
            result.extend(byte + len(SPECIALS) for byte in piece.encode())
    return result


def decode(token_ids: list[int], tokens: list[str]) -> str:
    """The text of token ids; specials give nothing."""
    result = b""
    for token_id in token_ids:
        if token_id >= len(SPECIALS) + 256:
            result += tokens[token_id].encode()
        elif token_id >= len(SPECIALS):
            result += bytes([token_id - len(SPECIALS)])
    return result.decode(errors="replace")


def make_stream(texts: list[str], ids: dict[str, int]) -> torch.Tensor:
    """All texts in one row of token ids, each between the begin and the end token."""
    return torch.tensor([token for text in texts for token in (BOS, *encode(text, ids), EOS)])


# --- model --------------------------------------------------------------------------------------------------------


def make_weights() -> Weights:
    """Fresh weights under the names of Hugging Face's Llama, in the order of its state dict."""
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (VOCAB, HIDDEN)}
    for index in range(LAYERS):
        prefix = f"model.layers.{index}"
        shapes |= {
            f"{prefix}.self_attn.q_proj.weight": (HEADS * HEAD_DIM, HIDDEN),
            f"{prefix}.self_attn.k_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            f"{prefix}.self_attn.v_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            f"{prefix}.self_attn.o_proj.weight": (HIDDEN, HEADS * HEAD_DIM),
            f"{prefix}.mlp.gate_proj.weight": (INTERMEDIATE, HIDDEN),
            f"{prefix}.mlp.up_proj.weight": (INTERMEDIATE, HIDDEN),
            f"{prefix}.mlp.down_proj.weight": (HIDDEN, INTERMEDIATE),
            f"{prefix}.input_layernorm.weight": (HIDDEN,),
            f"{prefix}.post_attention_layernorm.weight": (HIDDEN,),
        }
    shapes["model.norm.weight"] = (HIDDEN,)
    return {
        name: torch.ones(shape) if len(shape) == 1 else torch.randn(shape) * INIT_STD for name, shape in shapes.items()
    }


def make_rotary() -> Rotary:
    """Cosines and sines of the rotary positions, laid out in two halves as Hugging Face's Llama has them."""
    frequencies = ROPE_THETA ** (-torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)
    angles = torch.outer(torch.arange(CONTEXT), frequencies).repeat(1, 2)
    return angles.cos(), angles.sin()


def rotate(vectors: torch.Tensor, rotary: Rotary) -> torch.Tensor:
    """Turn query or key vectors (batch, head, position, channel) by their position."""
    first, second = vectors.chunk(2, dim=-1)
    length = vectors.shape[-2]
    return vectors * rotary[0][:length] + torch.cat((-second, first), dim=-1) * rotary[1][:length]


def forward(weights: Weights, rotary: Rotary, token_ids: torch.Tensor) -> torch.Tensor:
    """Logits (batch, position, token) for token ids (batch, position)."""
    batch, length = token_ids.shape
    embedding = weights["model.embed_tokens.weight"]
    hidden = functional.embedding(token_ids, embedding)
    for index in range(LAYERS):
        layer = {name: weights[f"model.layers.{index}.{name}.weight"] for name in LAYER_PARTS}
        normed = functional.rms_norm(hidden, (HIDDEN,), layer["input_layernorm"], NORM_EPS)
        query, key, value = (
            functional.linear(normed, layer[f"self_attn.{part}_proj"]).view(batch, length, -1, HEAD_DIM).transpose(1, 2)
            for part in "qkv"
        )
        key, value = (part.repeat_interleave(HEADS // KV_HEADS, dim=1) for part in (rotate(key, rotary), value))
        mixed = functional.scaled_dot_product_attention(rotate(query, rotary), key, value, is_causal=True)
        hidden = hidden + functional.linear(mixed.transpose(1, 2).flatten(2), layer["self_attn.o_proj"])
        normed = functional.rms_norm(hidden, (HIDDEN,), layer["post_attention_layernorm"], NORM_EPS)
        gate = functional.silu(functional.linear(normed, layer["mlp.gate_proj"]))
        gated = gate * functional.linear(normed, layer["mlp.up_proj"])
        hidden = hidden + functional.linear(gated, layer["mlp.down_proj"])
    hidden = functional.rms_norm(hidden, (HIDDEN,), weights["model.norm.weight"], NORM_EPS)
    return functional.linear(hidden, embedding)


def mean_loss(weights: Weights, rotary: Rotary, windows: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy, in nats a token, of windows that are one token longer than the context."""
    logits = forward(weights, rotary, windows[:, :-1])
    return functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())


def held_out_loss(weights: Weights, rotary: Rotary, stream: torch.Tensor) -> float:
    """Mean loss over the whole held-out stream, cut into windows that follow each other."""
    windows = stream.unfold(0, CONTEXT + 1, CONTEXT)
    with torch.no_grad():
        parts = [mean_loss(weights, rotary, part) * len(part) for part in windows.split(BATCH)]
    return float(sum(parts) / len(windows))


# --- training -----------------------------------------------------------------------------------------------------


def learning_rate(step: int) -> float:
    """Linear warm-up, then half a cosine down to the last rate; steps count from 1."""
    if step <= WARM_UP:
        return PEAK_LR * step / WARM_UP
    progress = (step - WARM_UP) / (STEPS - WARM_UP)
    return LAST_LR + (PEAK_LR - LAST_LR) * (1 + math.cos(math.pi * progress)) / 2


def train(weights: Weights, rotary: Rotary, stream: torch.Tensor) -> list[tuple[int, float, float]]:
    """Train the weights in place; gives (step, loss of the step's batch, learning rate) for the logged steps."""
    for weight in weights.values():
        weight.requires_grad_()
    matrices = [weight for weight in weights.values() if weight.ndim == 2]
    norms = [weight for weight in weights.values() if weight.ndim == 1]
    groups = [{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": norms, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.98), fused=True)
    log: list[tuple[int, float, float]] = []
    for step in range(1, STEPS + 1):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step)
        starts = torch.randint(len(stream) - CONTEXT, (BATCH, 1))
        loss = mean_loss(weights, rotary, stream[starts + torch.arange(CONTEXT + 1)])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights.values(), CLIP)
        optimizer.step()
        if step == 1 or step % LOG_EVERY == 0:
            log.append((step, loss.item(), learning_rate(step)))
            print(f"step {step:5d}  loss {loss.item():.4f}", flush=True)
    return log


# --- export and use -----------------------------------------------------------------------------------------------


def export(weights: Weights, tokens: list[str]) -> None:
    """Write the shards, their index, the configuration and the vocabulary.

    The shards are filled in the order of the state dict up to a limit and the index has the keys that Hugging Face
    writes. The matrices of the layers become bfloat16; the norms and the embeddings stay float32. There is no
    lm_head.weight because the output uses the embeddings.
    """
    state = {
        name: weight.detach().to(torch.float32 if FLOAT32_NAMES.search(name) else torch.bfloat16).contiguous()
        for name, weight in weights.items()
    }
    shards: list[Weights] = [{}]
    filled = 0
    for name, tensor in state.items():
        if filled + tensor.nbytes > SHARD_LIMIT:
            shards.append({})
            filled = 0
        shards[-1][name] = tensor
        filled += tensor.nbytes
    if len(shards) != SHARDS:
        raise ValueError(f"the limit gives {len(shards)} shards, not {SHARDS}")

    SET_DIR.mkdir(exist_ok=True)
    weight_map: dict[str, str] = {}
    for number, shard in enumerate(shards, start=1):
        file_name = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        save_file(shard, SET_DIR / file_name, metadata={"format": "pt"})
        (SET_DIR / file_name).chmod(0o644)  # the writer leaves it readable by its owner only
        weight_map |= dict.fromkeys(shard, file_name)
    totals = {
        "total_parameters": sum(tensor.numel() for tensor in state.values()),
        "total_size": sum(tensor.nbytes for tensor in state.values()),
    }
    config = {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "head_dim": HEAD_DIM,
        "hidden_act": "silu",
        "hidden_size": HIDDEN,
        "initializer_range": INIT_STD,
        "intermediate_size": INTERMEDIATE,
        "max_position_embeddings": CONTEXT,
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": HEADS,
        "num_hidden_layers": LAYERS,
        "num_key_value_heads": KV_HEADS,
        "pretraining_tp": 1,
        "rms_norm_eps": NORM_EPS,
        "rope_scaling": None,
        "rope_theta": ROPE_THETA,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "vocab_size": VOCAB,
    }
    index = {"metadata": totals, "weight_map": dict(sorted(weight_map.items()))}
    vocabulary = {token: token_id for token_id, token in enumerate(tokens)}
    for file_name, content in (
        ("model.safetensors.index.json", index),
        ("config.json", config),
        ("vocab.json", vocabulary),
    ):
        (SET_DIR / file_name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8", newline="\n")


def load() -> tuple[Weights, list[str]]:
    """The stored weights, as float32, and the vocabulary."""
    index = json.loads((SET_DIR / "model.safetensors.index.json").read_text(encoding="utf-8"))
    weights: Weights = {}
    for file_name in sorted(set(index["weight_map"].values())):
        weights |= {name: tensor.float() for name, tensor in load_file(SET_DIR / file_name).items()}
    return weights, list(json.loads((SET_DIR / "vocab.json").read_text(encoding="utf-8")))


def sample(weights: Weights, rotary: Rotary, tokens: list[str], prompt: str, temperature: float = 0.6) -> str:
    """Go on from a prompt until the end token or a full context; temperature 0 takes the likeliest token."""
    ids = {token: token_id for token_id, token in enumerate(tokens)}
    token_ids = [BOS, *encode(prompt, ids)]
    while len(token_ids) < CONTEXT and token_ids[-1] != EOS:
        with torch.no_grad():
            logits = forward(weights, rotary, torch.tensor([token_ids]))[0, -1]
        if temperature == 0:
            token_ids.append(int(logits.argmax()))
        else:
            token_ids.append(int(torch.multinomial((logits / temperature).softmax(dim=0), 1)))
    return decode(token_ids, tokens)


def train_and_export(rotary: Rotary) -> None:
    """The whole run, from the docstrings to the files."""
    texts = read_docstrings()
    learnt = [text for number, text in enumerate(texts) if number % HELD_OUT_EVERY]
    tokens = make_vocabulary(learnt)
    ids = {token: token_id for token_id, token in enumerate(tokens)}
    stream = make_stream(learnt, ids)
    held_out = make_stream(texts[::HELD_OUT_EVERY], ids)
    characters = sum(map(len, texts))
    print(f"Python {platform.python_version()}, torch {torch.__version__}")
    print(f"{len(texts)} docstrings, {characters} characters; {len(stream)} + {len(held_out)} tokens")

    weights = make_weights()
    print(f"{sum(weight.numel() for weight in weights.values())} parameters")
    print(f"held-out loss before training {held_out_loss(weights, rotary, held_out):.4f}")
    began = time.monotonic()
    log = train(weights, rotary, stream)
    print(f"{STEPS} steps in {time.monotonic() - began:.0f} s; loss {log[0][1]:.4f} first, {log[-1][1]:.4f} last")
    print(f"held-out loss after training {held_out_loss(weights, rotary, held_out):.4f}")

    with LOG_FILE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["step", "loss", "lr"])
        writer.writerows((step, f"{loss:.4f}", f"{rate:.3e}") for step, loss, rate in log)
    export(weights, tokens)
    print(f"held-out loss of the stored weights {held_out_loss(load()[0], rotary, held_out):.4f}")


def main() -> None:
    """Read the command line and train or sample."""
    parser = argparse.ArgumentParser(description="Train the demo checkpoint, or sample from the stored one.")
    parser.add_argument("--sample", metavar="PROMPT", help="go on from this prompt instead of training")
    parser.add_argument("--temperature", type=float, default=0.6, help="0 takes the likeliest token (default 0.6)")
    options = parser.parse_args()
    torch.manual_seed(SEED)
    torch.set_num_threads(THREADS)
    rotary = make_rotary()
    if options.sample is None:
        train_and_export(rotary)
    else:
        weights, tokens = load()
        print(sample(weights, rotary, tokens, options.sample, options.temperature))


if __name__ == "__main__":
    main()
