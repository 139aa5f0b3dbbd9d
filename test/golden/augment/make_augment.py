#!/usr/bin/env python3
"""What torchvision's functional transforms make of a Pillow image, for given numbers. Run by hand (needs torchvision):

    make_augment.py

changes.npz has `image` [height, width, 3], `colours` (an image of all hues, saturations and values in steps), and of each
transform its numbers and its images: `crops` [n, 6] of top, left, height, width and the size of the result, `crop0`, ...;
`paddings` [n, 3] of padding, top and left in the padded image; and the factors and images of the four colour changes.
test/unit/data/augment_test.cpp compares.
"""
import pathlib

import numpy as np
import torchvision.transforms.functional as F
from PIL import Image
from torchvision.transforms import InterpolationMode

HERE = pathlib.Path(__file__).parent


def main():
    random = np.random.default_rng(5)
    height, width = 23, 30
    y, x = np.mgrid[0:height, 0:width] / width
    waves = np.stack([np.sin(6 * (a * x + b * y) + c) for a, b, c in random.uniform(-2, 2, (3, 3))], axis=-1)
    pixels = np.uint8(np.clip(110 + 90 * waves + random.normal(0, 20, waves.shape), 0, 255))
    steps = np.uint8([0, 1, 60, 127, 128, 170, 200, 254, 255])
    colours = np.stack(np.meshgrid(steps, steps, steps, indexing="ij"), axis=-1).reshape(len(steps), -1, 3)
    arrays = {"image": pixels, "colours": colours}
    image = Image.fromarray(pixels)
    crops = [(0, 0, 23, 30, 12, 12), (3, 5, 14, 21, 12, 12), (19, 24, 4, 6, 12, 16), (22, 29, 1, 1, 4, 5), (1, 2, 13, 12, 13, 12)]
    for i, (top, left, h, w, *size) in enumerate(crops):
        cut = F.resized_crop(image, top, left, h, w, size, InterpolationMode.BILINEAR)
        arrays[f"crop{i}"] = np.asarray(cut)
    arrays["crops"] = np.int64(crops)
    paddings = [(4, 0, 0), (4, 8, 3), (9, 9, 9), (2, 1, 4)]
    for i, (padding, top, left) in enumerate(paddings):
        arrays[f"padded{i}"] = np.asarray(F.crop(F.pad(image, padding), top, left, height, width))
    arrays["paddings"] = np.int64(paddings)
    arrays["flipped"] = np.asarray(F.hflip(image))
    factors = {"brightness": (F.adjust_brightness, [0, 0.31, 0.6, 1, 1.000001, 1.4, 1.97, 5.3]),
               "contrast": (F.adjust_contrast, [0, 0.31, 0.6, 1, 1.000001, 1.4, 1.97, 5.3]),
               "saturation": (F.adjust_saturation, [0, 0.31, 0.6, 1, 1.000001, 1.4, 1.97, 5.3]),
               "hue": (F.adjust_hue, [-0.5, -0.31, -0.1, -0.003, 0, 0.003, 0.05, 0.1, 0.4, 0.5])}
    for name, (change, all_factors) in factors.items():
        arrays[f"{name}_factors"] = np.float64(all_factors)
        for of, source in (("image", image), ("colours", Image.fromarray(colours))):
            arrays[f"{name}_{of}"] = np.stack([np.asarray(change(source, factor)) for factor in all_factors])
    np.savez_compressed(HERE / "changes.npz", **arrays)


main()
