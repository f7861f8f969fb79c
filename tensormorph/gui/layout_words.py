"""What is said of meshes and layouts. No Qt here."""

from __future__ import annotations

from tensormorph.errors import Problem
from tensormorph.mesh import DeviceMesh, Layout, Provenance, Shard, StridedShard
from tensormorph.model import Checkpoint, LogicalTensor
from tensormorph.text import count, listing, plural, printable

_STATED = "stated-mesh"


def sentence(text: str) -> str:
    """Return words of a reader as a line of their own, with a capital."""
    shown = printable(text, 600)
    return shown[:1].upper() + shown[1:]


def axis_name(mesh: DeviceMesh, axis: int) -> str:
    """Return the name of an axis, short enough for a line beside others."""
    return printable(mesh.names[axis], 24) or "axis"


def mesh_text(mesh: DeviceMesh) -> str:
    """Return a mesh as ``dp 2 × tp 4``."""
    return " × ".join(f"{axis_name(mesh, axis)} {count(n)}" for axis, n in enumerate(mesh.shape))


def ranks_text(mesh: DeviceMesh) -> str:
    """Return the ranks of a mesh: ``ranks 0 to 3``."""
    ranks = mesh.ranks
    if ranks == tuple(range(ranks[0], ranks[0] + len(ranks))) and len(ranks) > 1:
        return f"ranks {ranks[0]} to {ranks[-1]}"
    return f"rank{'s' if len(ranks) > 1 else ''} {listing([str(rank) for rank in ranks[:6]], 6)}"


def coordinate_text(mesh: DeviceMesh, coordinate: tuple[int, ...]) -> str:
    """Return a place on a mesh: ``dp 1, tp 3``."""
    return ", ".join(f"{axis_name(mesh, axis)} {i}" for axis, i in enumerate(coordinate))


def order_text(layout: Layout) -> str:
    """Return in which order the cuts were made, where that is not the order of the axes."""
    cuts = [axis for axis in layout.order if isinstance(layout.placements[axis], Shard | StridedShard)]
    if cuts == sorted(cuts):
        return ""
    names = [axis_name(layout.mesh, axis) for axis in cuts]
    return f"{names[0]} was cut first" if len(names) == 2 else f"cut in the order {', '.join(names)}"


def named_ranks(checkpoint: Checkpoint) -> int:
    """Return how many ranks the checkpoint is known to have; 0 where nothing names one."""
    rank = checkpoint.table.rank
    return max(checkpoint.facts.world_size or 0, int(rank.max()) + 1 if len(rank) else 0)


def mesh_provenance(checkpoint: Checkpoint, tensor: LogicalTensor | None) -> Provenance | None:
    """Return how the mesh is known that a tensor is placed on, or the checkpoint's; None where there is none."""
    if tensor is not None and tensor.layout is not None:
        return tensor.layout.provenance
    if checkpoint.mesh is None:
        return None
    return "stated" if checkpoint.mesh_evidence == "stated" else "inferred"


def why_no_layout(checkpoint: Checkpoint, tensor: LogicalTensor) -> str:
    """Return why nothing tells how a tensor is placed."""
    if checkpoint.mesh is None:
        return sentence(checkpoint.mesh_evidence) or "Not recorded"
    if not tensor.complete:
        return "Its layout is not known: it is not stored whole"
    return "No placement on this mesh gives the boxes that are stored of it"


def stated_result(checkpoint: Checkpoint) -> str:
    """Return whether what is stored agrees with the mesh that was stated; empty where none was."""
    for problem in checkpoint.problems:
        if problem.code == _STATED:
            return problem.sentence
    if checkpoint.mesh is None or checkpoint.mesh_evidence != "stated":
        return ""
    n = int(checkpoint.table.complete.sum())
    return f"The stated mesh ({checkpoint.mesh}) agrees with what is stored of {plural(n, 'tensor')}"


def stated_problems(checkpoint: Checkpoint) -> tuple[Problem, ...]:
    """Return that the stated mesh agrees, where it does: what the reader says only of one that does not."""
    told = stated_result(checkpoint)
    if not told or any(problem.code == _STATED for problem in checkpoint.problems):
        return ()
    return (Problem(_STATED, "info", told),)
