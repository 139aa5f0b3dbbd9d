"""The loss of a recipe, computed by PyTorch.

    loss_of({"kind": "softmax_cross_entropy", "axis": 1}, output, labels)       # a scalar tensor
    sum_of(losses_in(recipe), {"logits": logits, "box": box}, {"labels": labels, "boxes": boxes})
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


def _multi_margin(loss, output, labels, reduction):
    return F.multi_margin_loss(_classes_last(loss, output), labels.flatten().long(), loss.get("p", 1), loss.get("margin", 1.0),
                               _numbers(loss, "weight", output), reduction=reduction)


LOSSES = {
    "softmax_cross_entropy": _cross_entropy,
    "nll": _nll,
    "multi_margin": _multi_margin,
    "bce": lambda loss, output, labels, how: F.binary_cross_entropy(output, labels, reduction=how),
    "bce_with_logits": lambda loss, output, labels, how: F.binary_cross_entropy_with_logits(
        output, labels, reduction=how, pos_weight=_numbers(loss, "pos_weight", output)),
    "kl_div": lambda loss, output, labels, how: F.kl_div(output, labels, reduction=how, log_target=loss.get("log_target", False)),
    "mse": lambda loss, output, labels, how: F.mse_loss(output, labels, reduction=how),
    "l1": lambda loss, output, labels, how: F.l1_loss(output, labels, reduction=how),
    "huber": lambda loss, output, labels, how: F.huber_loss(output, labels, reduction=how, delta=loss.get("delta", 1.0)),
    "hinge_embedding": lambda loss, output, labels, how: F.hinge_embedding_loss(output, labels, loss.get("margin", 1.0), reduction=how),
}
# Losses of two outputs, and the labels.
PAIRS = {
    "cosine_embedding": lambda loss, a, b, labels, how: F.cosine_embedding_loss(a.flatten(0, -2), b.flatten(0, -2), labels.flatten(),
                                                                                loss.get("margin", 0.0), reduction=how),
    "margin_ranking": lambda loss, a, b, labels, how: F.margin_ranking_loss(a, b, labels, loss.get("margin", 0.0), reduction=how),
}


def losses_in(recipe):
    """The recipe's losses, as maps."""
    loss = recipe.get("loss") or []
    return [loss] if isinstance(loss, dict) else [{"kind": loss}] if isinstance(loss, str) else loss


def outputs_of(loss, outputs):
    """The names of the graph's outputs that a loss reads, its labels among them. `outputs`: those that there are."""
    named = loss.get("output", outputs[0])
    teacher = _label(loss).get("output")
    return ([named] if isinstance(named, str) else list(named)) + ([teacher] if teacher else [])


def label_names(loss):
    """The names of the inputs that a loss adds."""
    lengths = [loss.get(key, key) for key in ("input_lengths", "target_lengths")] if loss["kind"] == "ctc" else []
    return [_label(loss).get("name", "labels"), *lengths]


def _label(loss):
    labels = loss.get("labels") or {}
    return {"name": labels} if isinstance(labels, str) else labels


def sum_of(losses, outputs, labels):
    """The sum of the recipe's losses. `outputs`, `labels`: tensors by name."""
    return sum(loss.get("scale", 1.0) * _value(loss, outputs, labels) for loss in losses)


def _value(loss, outputs, labels):
    names, how = outputs_of(loss, list(outputs)), loss.get("reduction", "mean")
    teacher = _label(loss).get("output")
    read = [outputs[name] for name in names[:-1 if teacher else None]]
    label = outputs[teacher].detach() if teacher else labels.get(label_names(loss)[0])
    if loss["kind"] == "triplet":
        return F.triplet_margin_loss(*read, loss.get("margin", 1.0), loss.get("p", 2), loss.get("eps", 1e-6), loss.get("swap", False),
                                     reduction=how)
    if loss["kind"] in PAIRS:
        return PAIRS[loss["kind"]](loss, *read, label.to(read[0].dtype), how)
    if loss["kind"] == "ctc":
        steps_first = read[0] if read[0].shape[1] == label.shape[0] else read[0].transpose(0, 1)
        return F.ctc_loss(steps_first, label, *(labels[name] for name in label_names(loss)[1:]), loss.get("blank", 0), how,
                          loss.get("zero_infinity", False))
    return loss_of(loss, read[0], label)


def loss_of(loss, output, labels):
    """The recipe's loss of one output; `labels` has the shape and type of the plan's input."""
    if loss["kind"] == "output":
        return output.sum() if output.numel() == 1 else output.mean()
    if loss["kind"] not in LOSSES:
        raise CleaveError(f"loss.kind {loss['kind']!r} cannot be computed by PyTorch here", 1)
    if labels.is_floating_point():
        labels = labels.to(output.dtype).reshape(output.shape)
    elif loss["kind"] not in ("softmax_cross_entropy", "nll", "multi_margin"):
        labels = labels.to(output.dtype)
    return LOSSES[loss["kind"]](loss, output, labels, loss.get("reduction", "mean"))
