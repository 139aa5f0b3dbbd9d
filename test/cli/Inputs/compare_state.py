"""compare_state.py STATE.npz initial|trained|keys FILE...: do safetensors files together hold the state_dict that PyTorch
recorded? Same keys and shapes; `initial`: the same bits; `trained`: values within 2e-5 of the largest of their tensor."""
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "golden"))
import golden

kind = sys.argv[2]
part = "initial" if kind == "keys" else kind
recorded = np.load(sys.argv[1])
expected = {name.split("/", 1)[1]: recorded[name] for name in recorded.files if name.startswith(part + "/")}
found = {}
for path in sys.argv[3:]:
    found |= golden.read_safetensors(pathlib.Path(path))
assert set(found) == set(expected), f"missing {sorted(set(expected) - set(found))}, more {sorted(set(found) - set(expected))}"
for key, value in expected.items():
    assert found[key].shape == value.shape, f"{key} is {found[key].shape}, not {value.shape}"
    if kind == "initial":
        assert np.array_equal(found[key], value), f"{key} has other values"
    if kind == "trained":
        off = np.abs(found[key] - value).max() if value.size else 0
        assert off <= 2e-5 * max(1, np.abs(value).max()), f"{key} is off by {off}"
print(f"{len(found)} entries as in PyTorch")
