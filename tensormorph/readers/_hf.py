"""What lies beside the weights in a Hugging Face folder: configuration, declared ties, and signs of training state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tensormorph.errors import CorruptFileError, Problem, TensormorphError
from tensormorph.model import STATES, Facts, FileInfo, State, StateFact, StoredObject
from tensormorph.readers._bytes import ByteSource, FilePool
from tensormorph.readers._json import JsonObject, plain_json, strict_json
from tensormorph.readers._target import Target
from tensormorph.text import listing, plural, printable, size

JSON_BYTES = 16 << 20
"""JSON files beside the weights above this size are listed, not offered as objects."""

# Source: transformers, `_tied_weights_keys` of its model classes: the head, and the embeddings that it may share.
_HEADS = ("lm_head.weight", "embed_out.weight", "output_projection.weight")
_EMBEDDINGS = (
    "embed_tokens.weight", "wte.weight", "word_embeddings.weight", "embed_in.weight", "shared.weight",
    "tok_embeddings.weight",
)  # fmt: skip

# Source: transformers `Trainer`, accelerate `save_state`, torch users' habits: file names that hold training state.
_SIGNS: dict[State, tuple[str, ...]] = {
    "moments": ("optimizer.pt", "optimizer.bin", "optimizer.safetensors"),
    "hyperparameters": ("optimizer.pt", "optimizer.bin", "training_args.bin"),
    "scheduler": ("scheduler.pt", "scheduler.bin"),
    "scaler": ("scaler.pt",),
    "step": ("trainer_state.json",),
    "data_position": ("trainer_state.json", "dl_state_dict.bin", "sampler.bin"),
    "rng": ("rng_state.pth", "rng_state_0.pth", "random_states_0.pkl"),
    "config": ("config.json", "adapter_config.json"),
}


def read_json(target: Target, pool: FilePool, name: str, problems: list[Problem]) -> JsonObject | None:
    """Return a JSON object that lies in the folder; None, with a problem, where it cannot be used."""
    entry = target.entry(name)
    if entry is None or entry.kind != "file":
        return None
    try:
        path = target.resolve(name)
        if entry.n_bytes > JSON_BYTES:
            raise CorruptFileError(name, f"It has {size(entry.n_bytes)}, too much for a configuration")
        raw = ByteSource(pool, path, name, 0, pool.identity(path).n_bytes)
        found = strict_json(raw.read(0, raw.n_bytes), name, "file")
        return found if isinstance(found, JsonObject) else None
    except TensormorphError as error:
        problems.append(Problem("unreadable-config", "warning", f"{printable(name)} is not used: {error}", file=name))
        return None


def declared_ties(config: JsonObject | None, names: Iterable[str]) -> tuple[dict[str, str], list[Problem]]:
    """Return heads that are absent because they share the input embeddings: head -> embeddings.

    Only a configuration that says so makes an alias; without one the absence is told, and nothing more.
    """
    heads: list[str] = []
    embeddings: list[str] = []
    for name in names:
        if name.endswith(_HEADS):
            heads.append(name)
        elif name.endswith(_EMBEDDINGS):
            embeddings.append(name)
    if heads or not embeddings or not _has_head(config):
        return {}, []
    declared = _tie_flag(config)
    if declared is False:
        return {}, [
            Problem(
                "head-absent",
                "warning",
                "No output head (lm_head.weight) is stored, and config.json says that it does not share the embeddings",
            )
        ]
    if declared is None:
        return {}, [Problem("head-maybe-tied", "info",
            f"No output head (lm_head.weight) is stored: absent, maybe tied to {listing(embeddings)}; "
            "no configuration says so")]  # fmt: skip
    # Encoder-decoder models name the shared matrix `shared`; otherwise there must be one candidate only.
    shared = [e for e in embeddings if e.endswith("shared.weight")] or embeddings
    if len(shared) != 1:
        return {}, [
            Problem(
                "head-tied",
                "info",
                f"config.json ties the output head to the embeddings; which of {listing(shared)} is not recorded",
            )
        ]
    return {"lm_head.weight": shared[0]}, [Problem("head-tied", "info",
        f"lm_head.weight is absent by design: tied to {printable(shared[0])} by config.json", "lm_head.weight",
        "config.json")]  # fmt: skip


def _has_head(config: JsonObject | None) -> bool:
    """Whether the declared architecture has an output head at all; True where none is declared."""
    declared = config.get("architectures") if config is not None else None
    if not isinstance(declared, list) or not declared:
        return True
    return any(isinstance(name, str) and ("LM" in name or "ForConditionalGeneration" in name) for name in declared)


def _tie_flag(config: JsonObject | None) -> bool | None:
    if config is None:
        return None
    # Source: transformers: multimodal configurations keep the language model's in text_config, others in decoder.
    for part in (config, config.get("text_config"), config.get("decoder")):
        value = part.get("tie_word_embeddings") if isinstance(part, JsonObject) else None
        if isinstance(value, bool):
            return value
    return None


def facts(
    target: Target, config: JsonObject | None, trainer: JsonObject | None, metadata: Mapping[str, Any], n_tensors: int
) -> Facts:
    """Return what the files beside the weights tell; a state whose file we do not look into is unknown, not there."""
    names = set(target.names) if target.is_folder else set()
    states: dict[State, StateFact] = {}
    for state in STATES:
        signs = [name for name in _SIGNS.get(state, ()) if name in names]
        if signs:
            states[state] = StateFact(
                "unknown", f"{listing(signs)} lies beside the weights; this reader does not look into it"
            )
        else:
            states[state] = StateFact("no", "no file of that kind lies beside the weights")
    states["weights"] = StateFact("yes" if n_tensors else "no", f"{plural(n_tensors, 'tensor')} in safetensors files")
    if config is not None:
        states["config"] = StateFact("yes", "config.json")
    step = trainer.get("global_step") if trainer is not None else None
    step = step if isinstance(step, int) and not isinstance(step, bool) else None
    if step is not None:
        states["step"] = StateFact("yes", f"trainer_state.json: global_step {step:,}")
        states["data_position"] = StateFact(
            "unknown",
            "trainer_state.json counts steps; the position is replayed by skipping batches, nothing stores it",
        )
    version = config.get("transformers_version") if config is not None else None
    writer = metadata.get("format")
    software = f"transformers {printable(version, 40)}" if isinstance(version, str) else None
    if software is None and isinstance(writer, str):
        software = f"safetensors, format {printable(writer, 40)!r}"
    return Facts(
        None, "safetensors sets have no commit marker", step,
        "trainer_state.json" if step is not None else "nothing records a step", None, software, states,
    )  # fmt: skip


def json_objects(target: Target, pool: FilePool, skip: frozenset[str]) -> dict[str, StoredObject]:
    """Return the JSON files beside the weights as objects that are parsed when asked for."""
    out: dict[str, StoredObject] = {}
    for entry in target.entries:
        if entry.kind == "file" and entry.name.endswith(".json") and entry.name not in skip and target.is_folder:
            out[entry.name] = StoredObject(
                entry.name, "json", f"{size(entry.n_bytes)} of JSON", entry.n_bytes, entry.name, 0,
                _loader(target, pool, entry.name),
            )  # fmt: skip
    return out


def _loader(target: Target, pool: FilePool, name: str) -> Callable[[], Any]:
    def load() -> Any:
        problems: list[Problem] = []
        found = read_json(target, pool, name, problems)
        if problems:
            raise CorruptFileError(name, problems[0].sentence)
        return plain_json(found)

    return load


def folder_problems(target: Target, ours: frozenset[str]) -> list[Problem]:
    """Return what is odd in a folder whatever its format: pipes, links that leave, files that nobody may read."""
    out: list[Problem] = []
    for entry in target.entries:
        if entry.kind == "other":
            out.append(Problem("not-a-regular-file", "warning",
                f"{printable(entry.name)} is {entry.detail}; it was not opened", file=entry.name))  # fmt: skip
        elif entry.kind == "outside" and entry.name in ours:
            out.append(Problem("outside-root", "error",
                f"{printable(entry.name)} is a link out of the checkpoint's folder; it was not followed",
                file=entry.name))  # fmt: skip
        elif entry.kind == "unreadable":
            out.append(Problem("cannot-open", "warning",
                f"{printable(entry.name)} cannot be opened: {entry.detail}", file=entry.name))  # fmt: skip
        elif entry.leads_to is not None and entry.name in ours:
            out.append(Problem("link-as-text", "info",
                f"{printable(entry.name)} is a link of the cache that a copy turned into text; the file that it names, "
                f"{printable(entry.leads_to.name)}, was read for it", file=entry.name))  # fmt: skip
        if entry.locked:
            out.append(Problem("no-permission-bits", "warning",
                f"{printable(entry.name)} gives nobody the right to read it; only an administrator can",
                file=entry.name))  # fmt: skip
    return out


def file_infos(target: Target, roles: Mapping[str, str]) -> tuple[FileInfo, ...]:
    """Return every regular file with its role; those that the reader did not use are ``not read``."""
    return tuple(FileInfo(e.name, e.n_bytes, roles.get(e.name, "not read")) for e in target.entries if e.kind == "file")
