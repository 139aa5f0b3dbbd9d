#!/usr/bin/env python3
"""Turns a golden model's train.json into a Cleave recipe (YAML on standard output, or into a file).

    make_recipe.py FOLDER [-o recipe.yaml] [--data DATA.npz]

FOLDER holds train.json and data.npz. The arrays of data.npz have the shape [steps, batch, ...]; the `arrays` data kind
takes their leading two axes as one, so that samples taken in order repeat the recorded batches.
"""
import argparse
import json
import os
import sys


def loss(train):
    given = dict(train["loss"])
    out = {"kind": given.pop("kind")}
    for key in ("output", "reduction", "axis", "ignore_index", "label_smoothing"):
        if given.get(key) is not None:
            out[key] = given[key]
        given.pop(key, None)
    if given:
        sys.exit(f"train.json: loss keys that this script does not know: {sorted(given)}")
    label = train.get("label")
    if label:
        out["labels"] = {"name": label["name"]}
        if "dtype" in label:  # else both follow from the loss
            out["labels"] |= {"dtype": label["dtype"], "shape": [str(size) for size in label["shape"]]}
    return out


def recipe(train, data):
    out = {"dims": train["dims"], "loss": loss(train), "optimizer": train["optimizer"]}
    if train.get("clip_norm") is not None:
        out["clip_norm"] = train["clip_norm"]
    for key in ("trainable", "roles", "batch_norm", "dropout", "ties"):
        if key in train:
            out[key] = train[key]
    out["data"] = {"kind": "arrays", "path": data, "shuffle": False}
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("-o", "--output", default="-")
    parser.add_argument("--data", help="path of the arrays; by default data.npz in the folder")
    arguments = parser.parse_args()
    with open(os.path.join(arguments.folder, "train.json")) as file:
        train = json.load(file)
    data = arguments.data or os.path.abspath(os.path.join(arguments.folder, "data.npz"))
    # JSON is YAML, but for one thing: YAML wants a dot in numbers such as 1e-08. Cleave's reader does not.
    text = "# from train.json of " + train["name"] + "\n" + json.dumps(recipe(train, data), indent=1) + "\n"
    if arguments.output == "-":
        sys.stdout.write(text)
    else:
        with open(arguments.output, "w") as file:
            file.write(text)


if __name__ == "__main__":
    main()
