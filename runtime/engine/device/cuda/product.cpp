#include "runtime/engine/device/cuda/product.h"
#include "runtime/engine/device/contract_batch.h"
#include "runtime/engine/device/cuda/library.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/library_workspace.h"
#include <algorithm>
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
  case plan::F8E4M3:
    return realF8E4M3;
  case plan::F8E5M2:
    return realF8E5M2;
  default:
    return -1;
  }
}
bool isFp8(int type) { return type == realF8E4M3 || type == realF8E5M2; }
const char *typeName(int type) {
  if (isFp8(type)) return type == realF8E4M3 ? "e4m3" : "e5m2";
  return type == realF32 ? "f32" : type == realF64 ? "f64" : type == realF16 ? "f16" : "bf16";
}
int64_t typeBytes(int type) { return type == realF64 ? 8 : type == realF32 ? 4 : isFp8(type) ? 1 : 2; }

// The alignment of a place in the arena, whose own address is a multiple of more.
uint32_t alignmentOf(int64_t offset) {
  uint32_t alignment = 16;
  while (offset % alignment) alignment /= 2;
  return alignment;
}

// rows x columns by strides, as columns that lie together or, transposed, as rows that do; neither: no such matrix.
Result<ProductMatrix> matrixOf(const plan::Buffer &buffer, int64_t rows, int64_t rowStride, int64_t columns,
                               int64_t columnStride, const char *what) {
  ProductMatrix matrix{.type = realType(buffer.dtype()), .rows = rows, .columns = columns};
  matrix.alignment = alignmentOf(buffer.offset());
  // The stride of a dimension of one element means nothing.
  if ((rows == 1 || rowStride == 1) && (columns == 1 || columnStride >= rows)) {
    matrix.leading = columns == 1 ? std::max<int64_t>(rows, 1) : columnStride;
    return matrix;
  }
  if ((columns == 1 || columnStride == 1) && (rows == 1 || rowStride >= columns)) {
    matrix.transposed = true;
    std::swap(matrix.rows, matrix.columns);
    matrix.leading = rows == 1 ? std::max<int64_t>(columns, 1) : rowStride;
    return matrix;
  }
  return inputError(fmt::format("cuBLASLt has no matrix whose {} has strides {} and {} for {} by {} elements", what,
                                rowStride, columnStride, rows, columns));
}

// The library knows one vector beside a product, along the rows of its result: a bias, or a sum of an operand's.
Status setEpilogue(const plan::Contract &c, Product &product) {
  const plan::Buffer *aux = c.has_pre_activation() ? &c.pre_activation() : nullptr;
  if (c.has_bias()) product.epilogue |= epilogueBias, product.vector = &c.bias();
  if (c.activation() == plan::Contract::GELU) product.epilogue |= epilogueGelu | (aux ? epilogueAux : 0);
  if (c.activation() == plan::Contract::GELU_GRADIENT) product.epilogue |= epilogueGeluGradient;
  if (product.turned && product.epilogue)
    return inputError("a bias or activation along the rows of a transposed result");
  if (c.has_lhs_sum() || c.has_rhs_sum()) {
    if (product.epilogue || (c.has_lhs_sum() && c.has_rhs_sum()))
      return inputError("a sum of an operand beside a bias, an activation or another sum");
    product.epilogue = c.has_rhs_sum() == product.turned ? epilogueSumB : epilogueSumA;
    product.vector = c.has_rhs_sum() ? &c.rhs_sum() : &c.lhs_sum();
  }
  if (product.vector) {
    product.vectorType = realType(product.vector->dtype());
    product.vectorAlignment = alignmentOf(product.vector->offset());
  }
  if (aux) product.auxLeading = product.d.leading, product.auxAlignment = alignmentOf(aux->offset());
  bool once = product.batch == 1 && product.calls.size() == 1;
  if (!once && (c.activation() != plan::Contract::NONE || c.has_lhs_sum() || c.has_rhs_sum()))
    return inputError("an activation or a sum of a product with a batch");
  return Status::ok();
}

// Before Blackwell the library multiplies 8 bits with k innermost in both operands ("TN") and 16-byte alignment only.
Status checkFp8(const Product &product) {
  if (!isFp8(product.a.type) && !isFp8(product.b.type)) return Status::ok();
  const bool isLaid = product.a.transposed && !product.b.transposed;
  bool isAligned = product.a.alignment == 16 && product.b.alignment == 16 && product.d.alignment == 16;
  for (int64_t size : {product.a.leading, product.b.leading, product.depth, product.d.rows, product.d.columns,
                       product.d.leading * typeBytes(product.d.type)})
    isAligned = isAligned && size % 16 == 0;
  if (!isLaid || !isAligned || product.a.type + product.b.type == 2 * realF8E5M2)
    return inputError(fmt::format("cuBLASLt multiplies 8 bits only with k innermost in both operands, multiples of 16 "
                                  "bytes, and at most one in e5m2; this product is {}",
                                  product.key()));
  return Status::ok();
}

} // namespace

int64_t ProductMatrix::bytes(int64_t batch) const {
  return ((batch - 1) * batchStride + (columns - 1) * leading + rows) * typeBytes(type);
}

std::string Product::key() const {
  const ProductMatrix *all[] = {&a, &b, &d};
  std::string text = fmt::format("{}x{}x{} {}{} {},{}>{}", d.rows, d.columns, depth, a.transposed ? 'T' : 'N',
                                 b.transposed ? 'T' : 'N', typeName(a.type), typeName(b.type), typeName(d.type));
  if (compute == computeTf32) text += " tf32";
  auto add = [&](const char *name, auto value) {
    for (int i = 0; i < 3; ++i) text += fmt::format("{}{}", i ? "," : name, value(*all[i]));
  };
  add(" ld ", [](const ProductMatrix &m) { return m.leading; });
  add(" align ", [](const ProductMatrix &m) { return m.alignment; });
  if (batch > 1) {
    text += fmt::format(" batch {}", batch);
    add(" by ", [](const ProductMatrix &m) { return m.batchStride; });
  }
  if (accumulate) text += " adding";
  if (epilogue) text += fmt::format(" epilogue {}", epilogue);
  if (vector) text += fmt::format(" {} align {}", typeName(vectorType), vectorAlignment);
  if (auxLeading) text += fmt::format(" aux ld {} align {}", auxLeading, auxAlignment);
  return text;
}

Result<Product> productOf(const plan::Contract &c, bool tf32) {
  Product product;
  int rank = c.batch_size();
  int64_t m = c.m(), n = c.n(), k = c.k();
  int64_t lhsM = c.lhs_strides(rank), lhsK = c.lhs_strides(rank + 1), rhsK = c.rhs_strides(rank),
          rhsN = c.rhs_strides(rank + 1), outM = c.out_strides(rank), outN = c.out_strides(rank + 1);
  for (const plan::Buffer *buffer : {&c.lhs(), &c.rhs(), &c.out()})
    if (realType(buffer->dtype()) < 0)
      return inputError(fmt::format("cuBLASLt multiplies no {}", plan::DType_Name(buffer->dtype())));
  std::vector<ContractBatch> dims = batchOf(c);
  // A batch dimension that one operand lacks is more rows of one product where the strides run on.
  while (!dims.empty() && dims.back().rhs == 0 &&
         (m == 1 || (dims.back().lhs == lhsM * m && dims.back().out == outM * m))) {
    if (m == 1) lhsM = dims.back().lhs, outM = dims.back().out;
    m *= dims.back().size;
    dims.pop_back();
  }
  ContractBatch inner{1, 0, 0, 0};
  if (!dims.empty()) {
    auto largest = std::max_element(dims.begin(), dims.end(),
                                    [](const ContractBatch &x, const ContractBatch &y) { return x.size < y.size; });
    inner = *largest;
    dims.erase(largest);
  }
  product.batch = static_cast<int32_t>(inner.size);
  product.depth = k;
  product.accumulate = c.accumulate();

  // Columns of the library are rows of the result; of a result whose columns lie together, they are its columns.
  bool turned = product.turned = !(n == 1 || outN == 1) && (m == 1 || outM == 1);
  const plan::Buffer &first = turned ? c.lhs() : c.rhs(), &second = turned ? c.rhs() : c.lhs();
  Result<ProductMatrix> left =
      turned ? matrixOf(first, m, lhsM, k, lhsK, "left side") : matrixOf(first, n, rhsN, k, rhsK, "right side");
  Result<ProductMatrix> right =
      turned ? matrixOf(second, k, rhsK, n, rhsN, "right side") : matrixOf(second, k, lhsK, m, lhsM, "left side");
  Result<ProductMatrix> result =
      turned ? matrixOf(c.out(), m, outM, n, outN, "result") : matrixOf(c.out(), n, outN, m, outM, "result");
  for (const Result<ProductMatrix> *matrix : {&left, &right, &result})
    if (!*matrix) return matrix->status();
  if (result->transposed) return inputError("the rows of the result do not lie together");
  product.a = *left, product.b = *right, product.d = *result;
  product.a.batchStride = turned ? inner.lhs : inner.rhs;
  product.b.batchStride = turned ? inner.rhs : inner.lhs;
  product.d.batchStride = inner.out;
  bool wide = c.out().dtype() == plan::F64;
  product.compute = wide ? computeF64 : tf32 && c.lhs().dtype() == plan::F32 ? computeTf32 : computeF32;
  product.scale = wide ? realF64 : realF32;

  int64_t count = 1;
  for (const ContractBatch &dim : dims) count *= dim.size;
  for (int64_t i = 0; i < count; ++i) {
    int64_t lhs = 0, rhs = 0, out = 0, rest = i;
    for (size_t j = dims.size(); j-- > 0; rest /= dims[j].size) {
      int64_t place = rest % dims[j].size;
      lhs += place * dims[j].lhs, rhs += place * dims[j].rhs, out += place * dims[j].out;
    }
    lhs *= byteSize(c.lhs().dtype()), rhs *= byteSize(c.rhs().dtype()), out *= byteSize(c.out().dtype());
    product.calls.push_back({turned ? lhs : rhs, turned ? rhs : lhs, out});
    auto meet = [](ProductMatrix &matrix, int64_t offset) {
      matrix.alignment = std::min(matrix.alignment, alignmentOf(offset));
    };
    meet(product.a, product.calls.back().a);
    meet(product.b, product.calls.back().b);
    meet(product.d, product.calls.back().d);
  }
  CLEAVE_RETURN_IF_ERROR(setEpilogue(c, product));
  CLEAVE_RETURN_IF_ERROR(checkFp8(product));
  return product;
}

ProductDescription::~ProductDescription() {
  if (description) blas->descriptionDestroy(description);
  for (MatrixLayout layout : {a, b, d})
    if (layout) blas->layoutDestroy(layout);
}

Status ProductDescription::make(const CublasLt &library, const Product &product, Address vector, Address aux) {
  blas = &library;
  wide = product.scale == realF64;
  accumulate = product.accumulate;
  alignments = {product.a.alignment, product.b.alignment, product.d.alignment};
  int error = blas->descriptionCreate(&description, product.compute, product.scale);
  auto set = [&](int attribute, auto value) {
    if (!error) error = blas->descriptionSet(description, attribute, &value, sizeof value);
  };
  set(matmulTransA, static_cast<int32_t>(product.a.transposed ? operationT : operationN));
  set(matmulTransB, static_cast<int32_t>(product.b.transposed ? operationT : operationN));
  hasEpilogue = product.epilogue != 0;
  if (hasEpilogue) set(matmulEpilogue, product.epilogue);
  if (product.vectorType >= 0) {
    set(matmulBiasPointer, reinterpret_cast<void *>(vector));
    set(matmulBiasType, static_cast<int32_t>(product.vectorType));
  }
  if (product.auxLeading) {
    set(matmulAuxPointer, reinterpret_cast<void *>(aux));
    set(matmulAuxLeading, product.auxLeading);
  }
  CLEAVE_RETURN_IF_ERROR(blasStatus(*blas, error, "cannot describe the matrix product"));
  for (auto [layout, matrix] : {std::pair{&a, &product.a}, std::pair{&b, &product.b}, std::pair{&d, &product.d}}) {
    error = blas->layoutCreate(layout, matrix->type, static_cast<uint64_t>(matrix->rows),
                               static_cast<uint64_t>(matrix->columns), matrix->leading);
    if (!error && product.batch > 1)
      error = blas->layoutSet(*layout, layoutBatchCount, &product.batch, sizeof product.batch);
    if (!error && product.batch > 1)
      error = blas->layoutSet(*layout, layoutBatchStride, &matrix->batchStride, sizeof matrix->batchStride);
    CLEAVE_RETURN_IF_ERROR(blasStatus(*blas, error, "cannot describe a matrix"));
  }
  return Status::ok();
}

Result<std::vector<MatmulHeuristic>> ProductDescription::algorithms(BlasHandle handle, int most) const {
  MatmulPreference preference = nullptr;
  CLEAVE_RETURN_IF_ERROR(blasStatus(*blas, blas->preferenceCreate(&preference), "cannot make a preference"));
  auto workspace = static_cast<size_t>(productWorkspace);
  int error = blas->preferenceSet(preference, preferenceWorkspace, &workspace, sizeof workspace), found = 0;
  // Left out, the library takes addresses for multiples of 256.
  for (auto [attribute, alignment] :
       {std::pair{int(preferenceAlignmentA), alignments[0]}, std::pair{int(preferenceAlignmentB), alignments[1]},
        std::pair{int(preferenceAlignmentC), alignments[2]}, std::pair{int(preferenceAlignmentD), alignments[2]}})
    if (!error) error = blas->preferenceSet(preference, attribute, &alignment, sizeof alignment);
  std::vector<MatmulHeuristic> results(static_cast<size_t>(most));
  if (!error) error = blas->heuristic(handle, description, a, b, d, d, preference, most, results.data(), &found);
  blas->preferenceDestroy(preference);
  // The library says either where it lacks the epilogue.
  if (error == blasNotSupported || (error == blasInvalidValue && hasEpilogue)) found = error = 0;
  CLEAVE_RETURN_IF_ERROR(blasStatus(*blas, error, "cannot ask for the matrix product's algorithms"));
  results.resize(static_cast<size_t>(found));
  std::erase_if(results, [&](const MatmulHeuristic &one) { return one.state || one.workspaceBytes > workspace; });
  return results;
}

bool ProductDescription::accepts(BlasHandle handle, const MatmulAlgorithm &algorithm, size_t &workspaceBytes) const {
  MatmulHeuristic result{};
  if (blas->check(handle, description, a, b, d, d, &algorithm, &result) || result.state) return false;
  workspaceBytes = result.workspaceBytes;
  return workspaceBytes <= static_cast<size_t>(productWorkspace);
}

int ProductDescription::run(BlasHandle handle, const MatmulAlgorithm &algorithm, Address left, Address right,
                            Address out, Address workspace, size_t workspaceBytes, Stream stream) const {
  static constexpr float floats[] = {0, 1};
  static constexpr double doubles[] = {0, 1};
  auto scale = [&](int value) {
    return wide ? static_cast<const void *>(&doubles[value]) : static_cast<const void *>(&floats[value]);
  };
  auto pointer = [](Address address) { return reinterpret_cast<void *>(address); };
  return blas->matmul(handle, description, scale(1), pointer(left), a, pointer(right), b, scale(accumulate),
                      pointer(out), d, pointer(out), d, &algorithm, pointer(workspaceBytes ? workspace : 0),
                      workspaceBytes, stream);
}

} // namespace cleave::runtime::cuda
