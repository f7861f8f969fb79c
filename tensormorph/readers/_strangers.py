"""Files that are no checkpoint, or another sort of one, told by how they begin."""

from __future__ import annotations

import re

from tensormorph.text import count, printable


def stranger(head: bytes) -> str:
    """Return what a file is by its first bytes, as the end of a sentence; empty where they tell nothing.

    Sources: the Git LFS pointer specification v1; PKZIP APPNOTE 4.3; pickle protocol 2 and up (PROTO opcode);
    HDF5 and GGUF signatures.
    """
    pointer = re.match(rb"version https?://git-lfs[^\n]*\n(.*)", head, re.DOTALL)
    if pointer:
        size = re.search(rb"size (\d{1,18})", head)
        digest = re.search(rb"oid sha256:([0-9a-f]{12,64})", head)
        told = f"; the real file has {count(int(size[1]))} bytes" if size else ""
        told += f", sha256 {digest[1].decode()[:12]}…" if digest else ""
        return f"it is a Git LFS pointer{told}. The data is not here: fetch it with git lfs pull"
    text = head.lstrip()[:256].lower()
    if text.startswith((b"<!doctype html", b"<html", b"<head", b"<?xml")):
        title = re.search(rb"<title[^>]*>([^<]{1,80})", head, re.IGNORECASE)
        named = f" titled {printable(title[1].decode('utf-8', 'replace').strip())!r}" if title else ""
        return f"it is a web page{named}: a sign-in or error page was saved instead of the weights"
    if len(head) >= 16 and not any(head):
        return "it holds only zero bytes at its beginning: a preallocated or lost write"
    for signature, told in (
        (b"PK\x03\x04", "it is a zip archive, as torch.save writes"),
        (b"PK\x05\x06", "it is an empty zip archive"),
        (b"\x89HDF\r\n\x1a\n", "it is an HDF5 file"),
        (b"GGUF", "it is a GGUF file"),
        (b"\x93NUMPY", "it is a numpy array file"),
        (b"\x1f\x8b", "it is gzip-compressed"),
        (b"\x28\xb5\x2f\xfd", "it is zstandard-compressed"),
    ):
        if head.startswith(signature):
            return told
    if re.match(rb"\x80[\x02-\x05]", head):
        return "it is a pickle, as old torch.save writes; it is never run here"
    return ""
