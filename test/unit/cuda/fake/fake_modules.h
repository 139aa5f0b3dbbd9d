// Modules that the fake driver loads. A module of compiled kernels is one that fake_gpu_plan made: the plan's own
// kernels for an emulated grid, after a list of them.
//
//   fake-module 2 51200\n             kernels, bytes of the shared object behind the list
//   k0_add 3 0 1024 256\n             symbol, buffers, scalars, grain, threads
//   k1_mul_group3 2 1 1 256\n
//   \x7fELF...
//
// The reductions between ranks are known by their names in PTX text, which nobody can run here.
#pragma once

namespace fake {

// False: the image is no module.
bool loadModule(const void *image);

} // namespace fake
