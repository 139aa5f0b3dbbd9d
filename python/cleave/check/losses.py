"""The loss of a recipe, computed by PyTorch.

    loss_of({"kind": "softmax_cross_entropy", "axis": 1}, outputs, labels)      # a scalar tensor
"""
import torch
from torch.nn import functional as F

from cleave._tool import CleaveError


def _classes_last(loss, output):
    axis = loss.get("axis", -1)
    return output.movedim(axis, -1).flatten(0, -2) if output.dim() > 1 else output[None]


def _numbers(loss, key, output):
    """The recipe's weights, as the output's type; none: None."""
    return torch.as_tensor(loss[key], dtype=output.dtype, device=output.device) if loss.get(key) else None


def _ignored(loss):
    """The label that does not count; none: a number that no label is."""
    ignored = loss.get("ignore_index", -100)
    return -(1 << 40) if ignored is None else ignored


def _cross_entropy(loss, output, labels, reduction):
    logits, ignored = _classes_last(loss, output), _ignored(loss)
    if labels.is_floating_point():
        target, ignored = _classes_last(loss, labels), -100
        counts = torch.ones(logits.shape[0], dtype=logits.dtype)
    else:
        target = labels.flatten().long()
        counts = (target != ignored).to(logits.dtype)
    value = F.cross_entropy(logits, target, reduction=reduction, weight=_numbers(loss, "weight", output), ignore_index=ignored,
                            label_smoothing=loss.get("label_smoothing", 0.0))
    if not loss.get("z_loss"):
        return value
    extra = loss["z_loss"] * (logits.logsumexp(-1).square() * counts).sum()
    return value + (extra / counts.sum() if reduction == "mean" else extra)


def _nll(loss, output, labels, reduction):
    return F.nll_loss(_classes_last(loss, output), labels.flatten().long(), reduction=reduction,
                      weight=_numbers(loss, "weight", output), ignore_index=_ignored(loss))


LOSSES = {
    "softmax_cross_entropy": _cross_entropy,
    "nll": _nll,
    "bce": lambda loss, output, labels, how: F.binary_cross_entropy(output, labels, reduction=how),
    "bce_with_logits": lambda loss, output, labels, how: F.binary_cross_entropy_with_logits(
        output, labels, reduction=how, pos_weight=_numbers(loss, "pos_weight", output)),
    "kl_div": lambda loss, output, labels, how: F.kl_div(output, labels, reduction=how),
    "mse": lambda loss, output, labels, how: F.mse_loss(output, labels, reduction=how),
    "l1": lambda loss, output, labels, how: F.l1_loss(output, labels, reduction=how),
    "huber": lambda loss, output, labels, how: F.huber_loss(output, labels, reduction=how, delta=loss.get("delta", 1.0)),
}


def loss_of(loss, output, labels):
    """The recipe's loss of one output; `labels` has the shape and type of the plan's input."""
    if loss["kind"] == "output":
        return output.sum() if output.numel() == 1 else output.mean()
    if loss["kind"] not in LOSSES:
        raise CleaveError(f"loss.kind {loss['kind']!r} cannot be computed by PyTorch here", 1)
    if labels.is_floating_point():
        labels = labels.to(output.dtype).reshape(output.shape)
    elif loss["kind"] not in ("softmax_cross_entropy", "nll"):
        labels = labels.to(output.dtype)
    return LOSSES[loss["kind"]](loss, output, labels, loss.get("reduction", "mean"))
