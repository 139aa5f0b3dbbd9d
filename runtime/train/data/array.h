// Dense arrays in numpy's files: .npy, .npz (stored or deflated), and folders of .npy.
//
//     Result<ArrayFile> arrays = readArrays("data.npz");
//     const Array &x = arrays->at("input_ids");     // x.dtype == plan::I64, x.shape == {10, 8, 64}, x.bytes
#pragma once
#include "plan/plan.pb.h"
#include "runtime/base/mapped_file.h"
#include "runtime/base/status.h"
#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cleave::runtime {

struct Array {
  plan::DType dtype = plan::DTYPE_INVALID;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;    // row-major
  std::shared_ptr<const void> storage; // keeps the bytes
};

// By name (without ".npy"). Errors: missing, damaged, Fortran order, big-endian and unknown types; the file and array
// named.
Result<std::map<std::string, Array>> readArrays(const std::string &path);
// The bytes of one .npy file.
Result<Array> parseNpy(std::string_view bytes, std::shared_ptr<const void> storage, const std::string &what);

std::string describe(const Array &array); // "i64 [10, 8, 64]"

// Elements [begin, begin + count) as another type. Error: from floats to integers or bool.
Status convertElements(const Array &array, int64_t begin, int64_t count, plan::DType to, std::byte *out);

} // namespace cleave::runtime
