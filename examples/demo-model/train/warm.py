"""Begins with the weights of a finished model of the same widths instead of random ones (train.py --from FOLDER).

More experts than before are copies of the old ones whose routers differ at random; tokens that are new begin as what the
old vocabulary spelled them with.
"""

import torch

import checkpoint

ROUTER_NOISE = 0.5  # of the length of a router's row
EXPERT_NOISE = 0.02


def copies(t, count):
    return t[torch.arange(count) % len(t)]


def noisy(t, share):
    return t + share * torch.randn_like(t) * t.square().mean(-1, keepdim=True).sqrt()


def token_rows(old, old_tok, tok, spell):
    """old [old vocabulary][hidden] in the order of the new vocabulary; spell makes one row of several."""
    known = {b: i for i, b in old_tok.bytes.items()}
    rows = []
    for i in range(tok.size):
        text = tok.bytes[i]
        ids = [known[text]] if text in known else old_tok.encode(text.decode("latin-1"))
        rows.append(spell(old[ids]))
    return torch.stack(rows)


def begin(model, tok, folder):
    old_model, old_tok = checkpoint.load(folder)
    old, new = old_model.state_dict(), model.state_dict()
    for name, t in new.items():
        if name.startswith("auxiliary."):
            continue
        value = old[name]
        if name.endswith("embed_tokens.weight"):
            value = token_rows(value, old_tok, tok, lambda rows: rows.mean(0))
        elif name.endswith("lm_head.weight"):
            value = token_rows(value, old_tok, tok, lambda rows: rows[0])
        elif len(t) != len(value):
            value = copies(value, len(t))
            if ".experts." in name:
                value = noisy(value, EXPERT_NOISE)
            elif name.endswith("gate.weight"):
                value = noisy(value, ROUTER_NOISE)
        assert t.shape == value.shape, f"{name}: {tuple(value.shape)} for {tuple(t.shape)}"
        t.copy_(value)
    model.load_state_dict(new)
