#!/usr/bin/env python3
"""A small folder of images in ImageFolder's layout, and the arrays that Pillow makes of it.

    make_images.py

Needs Pillow 10 to 12 and numpy; the tests read what is recorded here. pictures/ holds three classes of PNG and JPEG files of
several kinds; FIT.npz (FIT: a key of FITS) holds x and labels of all images in the folder's order, by the steps of
torchvision's Resize, CenterCrop, ToTensor and Normalize.
"""
import pathlib

import numpy as np
from PIL import Image

HERE = pathlib.Path(__file__).parent
MEAN, STD = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])
# name -> (channels, height, width of the model, size); raw ones are pixels as they are, without ToTensor and Normalize
FITS = {"sized": (3, 12, 12, 15), "covered": (3, 12, 12, None), "wide": (3, 10, 16, None), "grey": (1, 12, 12, 12),
        "raw": (3, 12, 12, 15), "raw_grey": (1, 10, 16, None)}


def picture(random, height, width):
    """Smooth, with an edge: what JPEG keeps well enough to differ between right and wrong decoders."""
    y, x = np.mgrid[0:height, 0:width] / max(height, width)
    waves = [np.sin(6 * (a * x + b * y) + c) for a, b, c in random.uniform(-2, 2, (3, 3))]
    waves = np.stack(waves, axis=-1) + (x > random.uniform(0.2, 0.8))[..., None]
    return Image.fromarray(np.uint8(np.clip(90 + 60 * waves + random.normal(0, 8, waves.shape), 0, 255)))


def make_folder():
    random = np.random.default_rng(9)
    shapes = [(12, 12), (20, 31), (37, 14), (9, 11), (64, 48), (25, 25), (12, 30), (13, 40)]
    for number, name in enumerate(("bird", "cat", "tree")):
        folder = HERE / "pictures" / name
        (folder / "more").mkdir(parents=True, exist_ok=True)
        for i, (height, width) in enumerate(shapes):
            image = picture(random, height + number, width)
            kind = (i + number) % 8
            path = folder / ("more" if i % 4 == 3 else "") / f"{chr(ord('h') - i)}{i}"
            if kind == 0:
                image.save(f"{path}.png")
            elif kind == 1:
                image.quantize(50).save(f"{path}.png")
            elif kind == 2:
                image.convert("L").save(f"{path}.PNG")
            elif kind == 3:
                image.putalpha(image.convert("L"))
                image.save(f"{path}.png")
            elif kind == 4:
                image.convert("1").save(f"{path}.png")
            elif kind == 5:
                image.convert("L").save(f"{path}.jpeg", quality=90)
            else:
                image.save(f"{path}.jpg", quality=85, subsampling=0 if kind == 6 else 2, progressive=kind == 7)


def resized(image, height, width, size):
    w, h = image.size
    if size is None:  # as small as covers
        h, w = ((height, max(width, height * w // h)) if h * width <= w * height
                else (max(height, width * h // w), width))
    else:
        h, w = (size, int(size * w / h)) if h <= w else (int(size * h / w), size)
    return image.resize((w, h), Image.BILINEAR)


def cropped(image, height, width):
    w, h = image.size
    top, left = round((h - height) / 2.0), round((w - width) / 2.0)
    return image.crop((left, top, left + width, top + height))


def arrays(channels, height, width, size, raw=False):
    xs, labels = [], []
    for label, folder in enumerate(sorted(path for path in (HERE / "pictures").iterdir())):
        files = sorted((str(path.parent), path.name) for path in folder.rglob("*") if path.is_file())
        for parent, name in files:
            image = Image.open(pathlib.Path(parent) / name).convert("RGB")
            image = cropped(resized(image, height, width, size), height, width)
            if raw:
                pixels = np.asarray(image.convert("L"))[None] if channels == 1 else np.asarray(image).transpose(2, 0, 1)
            elif channels == 1:
                pixels = np.asarray(image.convert("L"), np.float32)[None] / np.float32(255)
            else:
                pixels = np.asarray(image, np.float32).transpose(2, 0, 1) / np.float32(255)
                pixels = (pixels - MEAN[:, None, None]) / STD[:, None, None]
            xs.append(pixels)
            labels.append(label)
    return np.stack(xs), np.array(labels)


if __name__ == "__main__":
    make_folder()
    for name, fit in FITS.items():
        x, labels = arrays(*fit, raw=name.startswith("raw"))
        np.savez_compressed(HERE / f"{name}.npz", x=x, labels=labels)
        print(name, x.shape, x.mean(), x.std())
