// A plan's matrix product as cuBLASLt sees it. The library thinks in columns: the rows of the plan's result are its
// columns, so the operands change places. Strides it has no word for (a batch of several dimensions) become several
// calls.
//
//   Result<Product> product = productOf(command.contract(), /*tf32=*/false);
//   product->key();              // "768x2048x3072 NN bf16,bf16>bf16 ld 768,3072,768 align 16,16,16 bias"
//   ProductDescription described;  Status s = described.make(blas, *product, bias, preActivation);
#pragma once
#include "plan/plan.pb.h"
#include "runtime/base/status.h"
#include "runtime/engine/device/cuda/api/cublas_lt.h"
#include <array>
#include <string>
#include <vector>

namespace cleave::runtime::cuda {

struct ProductMatrix {
  int type = 0;
  bool transposed = false;
  int64_t rows = 0, columns = 0; // as it lies: of a transposed matrix those before it is turned
  int64_t leading = 0, batchStride = 0;
  uint32_t alignment = 16; // of its address, bytes; no algorithm asks for more than 16
  int64_t bytes(int64_t batch) const;
};

struct Product {
  ProductMatrix a, b, d; // d = a b
  int64_t depth = 0;
  int32_t batch = 1; // of one call
  int compute = 0, scale = 0;
  bool accumulate = false;
  int32_t epilogue = 0; // 0: none
  int vectorType = -1;  // of a bias or a sum; -1: none
  uint32_t vectorAlignment = 16;
  int64_t auxLeading = 0; // of what GELU is applied to; 0: none
  uint32_t auxAlignment = 16;

  bool turned = false;                  // a is the plan's left side
  const plan::Buffer *vector = nullptr; // of the message that it was made from
  struct Call {
    int64_t a, b, d; // bytes from where the buffers begin
  };
  std::vector<Call> calls;

  // All that an algorithm's choice depends on, as text in one line. Equal products have equal keys on all ranks.
  std::string key() const;
};
// `tf32`: products of fp32 may round their operands. Error: what cuBLASLt has no word for.
Result<Product> productOf(const plan::Contract &contract, bool tf32);

// The library's objects for it.
class ProductDescription {
public:
  ProductDescription() = default;
  ProductDescription(const ProductDescription &) = delete;
  ~ProductDescription();
  Status make(const CublasLt &blas, const Product &product, Address vector, Address aux);
  // The algorithms the library thinks best, best first, that keep to the workspace and to the alignments; none: there
  // is none for what the product ends with.
  Result<std::vector<MatmulHeuristic>> algorithms(BlasHandle handle, int most) const;
  // Whether the algorithm is one for this product; its workspace.
  bool accepts(BlasHandle handle, const MatmulAlgorithm &algorithm, size_t &workspaceBytes) const;
  int run(BlasHandle handle, const MatmulAlgorithm &algorithm, Address a, Address b, Address d, Address workspace,
          size_t workspaceBytes, Stream stream) const;

private:
  const CublasLt *blas = nullptr;
  MatmulDescription description = nullptr;
  MatrixLayout a = nullptr, b = nullptr, d = nullptr;
  std::array<uint32_t, 3> alignments{};
  bool wide = false, accumulate = false, hasEpilogue = false;
};

} // namespace cleave::runtime::cuda
