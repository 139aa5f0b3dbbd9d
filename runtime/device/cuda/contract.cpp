// Matrix products by cuBLASLt, which thinks in columns: the rows of the plan's result are its columns, so the operands
// change places. Strides the library has no word for (a batch of several dimensions) become several calls.
#include "runtime/device/cuda/cuda_device.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/library_workspace.h"
#include <fmt/format.h>

namespace cleave::runtime::cuda {
namespace {

int realType(plan::DType dtype) {
  switch (dtype) {
  case plan::F32:
    return realF32;
  case plan::F64:
    return realF64;
  case plan::F16:
    return realF16;
  case plan::BF16:
    return realBf16;
  default:
    return -1;
  }
}

struct BatchDim {
  int64_t size, lhs, rhs, out;
};

// A matrix as the library sees it: `rows` lie together unless it is transposed.
struct Matrix {
  bool transposed = false;
  int64_t leading = 0;
};
// rows x columns by strides; none of them 1: no such matrix.
Result<Matrix> matrixOf(int64_t rows, int64_t rowStride, int64_t columns, int64_t columnStride, const char *what) {
  // The stride of a dimension of one element means nothing.
  if (rows == 1 || rowStride == 1)
    if (columns == 1 || columnStride >= rows)
      return Matrix{false, columns == 1 ? std::max<int64_t>(rows, 1) : columnStride};
  if (columns == 1 || columnStride == 1)
    if (rows == 1 || rowStride >= columns) return Matrix{true, rows == 1 ? std::max<int64_t>(columns, 1) : rowStride};
  return inputError(fmt::format("cuBLASLt has no matrix whose {} has strides {} and {} for {} by {} elements", what,
                                rowStride, columnStride, rows, columns));
}

class Matmul final : public PreparedCommand {
public:
  explicit Matmul(CudaDevice &device, int lane)
      : device(device), blas(*device.gpu().blas), stream(device.stream(lane)) {}
  ~Matmul() override {
    if (description) blas.descriptionDestroy(description);
    for (MatrixLayout layout : {a, b, d})
      if (layout) blas.layoutDestroy(layout);
  }

  Status run() override {
    for (const Call &call : calls)
      if (int error =
              blas.matmul(device.gpu().blasHandle, description, scale(1), pointer(call.a), a, pointer(call.b), b,
                          scale(accumulate ? 1 : 0), pointer(call.d), d, pointer(call.d), d, &algorithm,
                          pointer(workspaceBytes ? device.workspaceMemory().address() : 0), workspaceBytes, stream))
        return blasStatus(blas, error, "a matrix product does not start");
    return Status::ok();
  }

  Status build(const plan::Contract &c);

private:
  struct Call {
    Address a, b, d;
  };
  static void *pointer(Address address) { return reinterpret_cast<void *>(address); }
  const void *scale(int value) const {
    static constexpr float floats[] = {0, 1};
    static constexpr double doubles[] = {0, 1};
    return wide ? static_cast<const void *>(&doubles[value]) : &floats[value];
  }
  Status layout(MatrixLayout &made, plan::DType dtype, int64_t rows, int64_t columns, const Matrix &matrix,
                int64_t batchStride);
  Status setEpilogue(const plan::Contract &c, bool turned, int64_t leading);
  Status choose();

  CudaDevice &device;
  const CublasLt &blas;
  Stream stream;
  MatmulDescription description = nullptr;
  MatrixLayout a = nullptr, b = nullptr, d = nullptr;
  MatmulAlgorithm algorithm{};
  size_t workspaceBytes = 0;
  bool accumulate = false, wide = false;
  bool endsWithMore = false; // a bias, an activation, a sum
  int32_t batch = 1; // of one call
  std::vector<Call> calls;
};

Status Matmul::layout(MatrixLayout &made, plan::DType dtype, int64_t rows, int64_t columns, const Matrix &matrix,
                      int64_t batchStride) {
  if (matrix.transposed) std::swap(rows, columns);
  int error = blas.layoutCreate(&made, realType(dtype), static_cast<uint64_t>(rows), static_cast<uint64_t>(columns),
                                matrix.leading);
  if (!error && batch > 1) error = blas.layoutSet(made, layoutBatchCount, &batch, sizeof batch);
  if (!error && batch > 1) error = blas.layoutSet(made, layoutBatchStride, &batchStride, sizeof batchStride);
  return blasStatus(blas, error, "cannot describe a matrix");
}

Status Matmul::choose() {
  MatmulPreference preference = nullptr;
  CLEAVE_RETURN_IF_ERROR(blasStatus(blas, blas.preferenceCreate(&preference), "cannot make a preference"));
  auto most = static_cast<size_t>(productWorkspace);
  int error = blas.preferenceSet(preference, preferenceWorkspace, &most, sizeof most), found = 0;
  MatmulHeuristic best{};
  if (!error) error = blas.heuristic(device.gpu().blasHandle, description, a, b, d, d, preference, 1, &best, &found);
  blas.preferenceDestroy(preference);
  const char *advice = endsWithMore ? " with what it ends with; compile with --set epilogues=written" : "";
  CLEAVE_RETURN_IF_ERROR(
      blasStatus(blas, error, (std::string("no algorithm for the matrix product") + advice).c_str()));
  if (!found) return runError(std::string("cuBLASLt knows no algorithm for the matrix product") + advice);
  algorithm = best.algorithm;
  workspaceBytes = best.workspaceBytes;
  device.needWorkspace(workspaceBytes);
  return Status::ok();
}

Status Matmul::build(const plan::Contract &c) {
  int rank = c.batch_size();
  int64_t m = c.m(), n = c.n(), k = c.k();
  int64_t lhsM = c.lhs_strides(rank), lhsK = c.lhs_strides(rank + 1), rhsK = c.rhs_strides(rank),
          rhsN = c.rhs_strides(rank + 1), outM = c.out_strides(rank), outN = c.out_strides(rank + 1);
  accumulate = c.accumulate();
  wide = c.out().dtype() == plan::F64;
  for (const plan::Buffer *buffer : {&c.lhs(), &c.rhs(), &c.out()})
    if (realType(buffer->dtype()) < 0)
      return inputError(fmt::format("cuBLASLt multiplies no {}", plan::DType_Name(buffer->dtype())));
  std::vector<BatchDim> dims;
  for (int i = 0; i < rank; ++i) {
    BatchDim dim{c.batch(i), c.lhs_strides(i), c.rhs_strides(i), c.out_strides(i)};
    if (dim.size == 1) continue;
    if (!dims.empty()) { // runs on from the dimension before it?
      BatchDim &last = dims.back();
      if (last.lhs == dim.lhs * dim.size && last.rhs == dim.rhs * dim.size && last.out == dim.out * dim.size) {
        last = {last.size * dim.size, dim.lhs, dim.rhs, dim.out};
        continue;
      }
    }
    dims.push_back(dim);
  }
  // A batch dimension that one operand lacks is more rows of one product where the strides run on.
  while (!dims.empty() && dims.back().rhs == 0 &&
         (m == 1 || (dims.back().lhs == lhsM * m && dims.back().out == outM * m))) {
    if (m == 1) lhsM = dims.back().lhs, outM = dims.back().out;
    m *= dims.back().size;
    dims.pop_back();
  }
  BatchDim inner{1, 0, 0, 0};
  if (!dims.empty()) {
    auto largest = std::max_element(dims.begin(), dims.end(),
                                    [](const BatchDim &x, const BatchDim &y) { return x.size < y.size; });
    inner = *largest;
    dims.erase(largest);
  }
  batch = static_cast<int32_t>(inner.size);

  // Columns of the library are rows of the result; of a result whose columns lie together, they are its columns.
  bool turned = !(n == 1 || outN == 1) && (m == 1 || outM == 1);
  int64_t rows = turned ? m : n, columns = turned ? n : m;
  Result<Matrix> left = turned ? matrixOf(m, lhsM, k, lhsK, "left side") : matrixOf(n, rhsN, k, rhsK, "right side");
  Result<Matrix> right = turned ? matrixOf(k, rhsK, n, rhsN, "right side") : matrixOf(k, lhsK, m, lhsM, "left side");
  Result<Matrix> result = turned ? matrixOf(m, outM, n, outN, "result") : matrixOf(n, outN, m, outM, "result");
  for (const Result<Matrix> *matrix : {&left, &right, &result})
    if (!*matrix) return matrix->status();
  if (result->transposed) return inputError("the rows of the result do not lie together");

  int error = blas.descriptionCreate(&description,
                                     wide                                                ? computeF64
                                     : device.gpu().tf32 && c.lhs().dtype() == plan::F32 ? computeTf32
                                                                                         : computeF32,
                                     wide ? realF64 : realF32);
  auto set = [&](int attribute, auto value) {
    if (!error) error = blas.descriptionSet(description, attribute, &value, sizeof value);
  };
  set(matmulTransA, static_cast<int32_t>(left->transposed ? operationT : operationN));
  set(matmulTransB, static_cast<int32_t>(right->transposed ? operationT : operationN));
  CLEAVE_RETURN_IF_ERROR(blasStatus(blas, error, "cannot describe the matrix product"));
  CLEAVE_RETURN_IF_ERROR(setEpilogue(c, turned, result->leading));
  const plan::Buffer &first = turned ? c.lhs() : c.rhs(), &second = turned ? c.rhs() : c.lhs();
  CLEAVE_RETURN_IF_ERROR(layout(a, first.dtype(), rows, k, *left, turned ? inner.lhs : inner.rhs));
  CLEAVE_RETURN_IF_ERROR(layout(b, second.dtype(), k, columns, *right, turned ? inner.rhs : inner.lhs));
  CLEAVE_RETURN_IF_ERROR(layout(d, c.out().dtype(), rows, columns, *result, inner.out));
  int64_t count = 1;
  for (const BatchDim &dim : dims) count *= dim.size;
  for (int64_t i = 0; i < count; ++i) {
    int64_t lhs = 0, rhs = 0, out = 0, rest = i;
    for (size_t j = dims.size(); j-- > 0; rest /= dims[j].size) {
      int64_t place = rest % dims[j].size;
      lhs += place * dims[j].lhs, rhs += place * dims[j].rhs, out += place * dims[j].out;
    }
    Address l = device.at(c.lhs()) + static_cast<Address>(lhs * byteSize(c.lhs().dtype())),
            r = device.at(c.rhs()) + static_cast<Address>(rhs * byteSize(c.rhs().dtype()));
    calls.push_back(
        {turned ? l : r, turned ? r : l, device.at(c.out()) + static_cast<Address>(out * byteSize(c.out().dtype()))});
  }
  if (calls.size() > 1 && c.activation() != plan::Contract::NONE)
    return inputError("an activation of a product whose batch is several calls");
  return choose();
}

// The library knows one vector beside a product, along the rows of its result: a bias, or a sum of an operand's.
Status Matmul::setEpilogue(const plan::Contract &c, bool turned, int64_t leading) {
  int32_t epilogue = 0;
  const plan::Buffer *vector = nullptr, *aux = c.has_pre_activation() ? &c.pre_activation() : nullptr;
  if (c.has_bias()) epilogue |= epilogueBias, vector = &c.bias();
  if (c.activation() == plan::Contract::GELU) epilogue |= epilogueGelu | (aux ? epilogueAux : 0);
  if (c.activation() == plan::Contract::GELU_GRADIENT) epilogue |= epilogueGeluGradient;
  if (turned && epilogue) return inputError("a bias or activation along the rows of a transposed result");
  if (c.has_lhs_sum() || c.has_rhs_sum()) {
    if (epilogue || (c.has_lhs_sum() && c.has_rhs_sum()))
      return inputError("a sum of an operand beside a bias, an activation or another sum");
    epilogue = c.has_rhs_sum() == turned ? epilogueSumB : epilogueSumA;
    vector = c.has_rhs_sum() ? &c.rhs_sum() : &c.lhs_sum();
  }
  int error = 0;
  auto set = [&](int attribute, auto value) {
    if (!error) error = blas.descriptionSet(description, attribute, &value, sizeof value);
  };
  endsWithMore = epilogue != 0;
  if (epilogue) set(matmulEpilogue, epilogue);
  if (vector) {
    set(matmulBiasPointer, pointer(device.at(*vector)));
    set(matmulBiasType, static_cast<int32_t>(realType(vector->dtype())));
  }
  if (aux) {
    set(matmulAuxPointer, pointer(device.at(*aux)));
    set(matmulAuxLeading, leading);
  }
  return blasStatus(blas, error, "cannot describe what a matrix product does at its end");
}

} // namespace

Result<Prepared> prepareContract(const plan::Contract &command, CudaDevice &device, int lane) {
  CLEAVE_RETURN_IF_ERROR(device.gpu().needBlas());
  auto matmul = std::make_unique<Matmul>(device, lane);
  CLEAVE_RETURN_IF_ERROR(matmul->build(command));
  return Prepared(std::move(matmul));
}

} // namespace cleave::runtime::cuda
