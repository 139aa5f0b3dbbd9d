// cuBLASLt in plain loops, in the order of k, on the fake driver's streams. What the library's documentation rules out
// has no algorithm here either: an auxiliary matrix whose rows are no multiple of 8 elements, a bias of another type
// than the result.
#include "test/unit/cuda/fake/fake_streams.h"
#include "test/unit/cuda/fake/numbers.h"
#include <cmath>
#include <cstdint>
#include <cstring>

namespace {
struct Description {
  int compute = 68, transA = 0, transB = 0, epilogue = 1, biasType = -1;
  void *vector = nullptr, *aux = nullptr;
  int64_t auxLeading = 0;
};
struct Layout {
  int type;
  int64_t rows, columns, leading;
  int32_t batch = 1;
  int64_t stride = 0;
};
constexpr size_t workspaceBytes = 1024;
constexpr int bias = 4, gelu = 32, geluGradient = 192, sumA = 256, sumB = 512, auxiliary = 128;

bool isKnown(int type) { return type == 0 || type == 1 || type == 2 || type == 14; }
fake::Number number(int type) {
  return type == 0   ? fake::Number::F32
         : type == 1 ? fake::Number::F64
         : type == 2 ? fake::Number::F16
                     : fake::Number::Bf16;
}
double load(int type, const void *from, int64_t at) { return fake::load(number(type), from, at); }
void store(int type, void *to, int64_t at, double value) { fake::store(number(type), to, at, value); }
// As NVIDIA documents CUBLASLT_EPILOGUE_GELU: the approximation by tanh.
double tanhOf(double x) { return std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)); }
double geluOf(double x) { return 0.5 * x * (1 + tanhOf(x)); }
double geluSlope(double x) {
  double t = tanhOf(x);
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 0.134145 * x * x);
}

void multiply(const Description &d, double alpha, double beta, const void *a, const Layout &la, const void *b,
              const Layout &lb, void *out, const Layout &lo) {
  int64_t depth = d.transA ? la.rows : la.columns;
  bool rounds = d.compute == 77; // operands to 10 bits of mantissa
  auto operand = [&](int type, const void *from, int64_t at) {
    double value = load(type, from, at);
    if (!rounds) return value;
    auto narrow = static_cast<float>(value);
    uint32_t bits;
    std::memcpy(&bits, &narrow, 4);
    bits = (bits + 0x1000) & ~0x1fffU;
    std::memcpy(&narrow, &bits, 4);
    return static_cast<double>(narrow);
  };
  auto atA = [&](int64_t i, int64_t r, int64_t k) {
    return operand(la.type, a, i * la.stride + (d.transA ? r * la.leading + k : k * la.leading + r));
  };
  auto atB = [&](int64_t i, int64_t k, int64_t c) {
    return operand(lb.type, b, i * lb.stride + (d.transB ? k * lb.leading + c : c * lb.leading + k));
  };
  for (int64_t i = 0; i < lo.batch; ++i)
    for (int64_t c = 0; c < lo.columns; ++c)
      for (int64_t r = 0; r < lo.rows; ++r) {
        double sum = 0;
        for (int64_t k = 0; k < depth; ++k) sum += atA(i, r, k) * atB(i, k, c);
        int64_t at = i * lo.stride + c * lo.leading + r;
        sum = alpha * sum + (beta != 0 ? beta * load(lo.type, out, at) : 0);
        if (d.epilogue < sumA && (d.epilogue & bias)) sum += load(d.biasType, d.vector, r);
        if (d.epilogue == geluGradient) {
          sum *= geluSlope(load(lo.type, d.aux, c * d.auxLeading + r));
        } else if (d.epilogue < sumA && (d.epilogue & gelu)) {
          if (d.epilogue & auxiliary) store(lo.type, d.aux, c * d.auxLeading + r, sum);
          sum = geluOf(sum);
        }
        store(lo.type, out, at, sum);
      }
  if (d.epilogue == sumA)
    for (int64_t r = 0; r < lo.rows; ++r) {
      double sum = 0;
      for (int64_t k = 0; k < depth; ++k) sum += atA(0, r, k);
      store(d.biasType, d.vector, r, sum);
    }
  if (d.epilogue == sumB)
    for (int64_t c = 0; c < lo.columns; ++c) {
      double sum = 0;
      for (int64_t k = 0; k < depth; ++k) sum += atB(0, k, c);
      store(d.biasType, d.vector, c, sum);
    }
}
} // namespace

extern "C" {
const char *cublasLtGetStatusString(int) { return "not as the fake library wants it"; }
int cublasLtCreate(void **handle) { return *handle = new int, 0; }
int cublasLtDestroy(void *handle) { return delete static_cast<int *>(handle), 0; }
int cublasLtMatmulDescCreate(Description **description, int compute, int scale) {
  *description = new Description{.compute = compute};
  return (compute == 70) == (scale == 1) ? 0 : 15;
}
int cublasLtMatmulDescDestroy(Description *description) { return delete description, 0; }
int cublasLtMatmulDescSetAttribute(Description *d, int attribute, const void *value, size_t bytes) {
  void *to = attribute == 3    ? static_cast<void *>(&d->transA)
             : attribute == 4  ? &d->transB
             : attribute == 7  ? &d->epilogue
             : attribute == 8  ? static_cast<void *>(&d->vector)
             : attribute == 11 ? static_cast<void *>(&d->aux)
             : attribute == 12 ? static_cast<void *>(&d->auxLeading)
             : attribute == 26 ? &d->biasType
                               : nullptr;
  if (to) std::memcpy(to, value, bytes);
  return to ? 0 : 7;
}
int cublasLtMatrixLayoutCreate(Layout **layout, int type, uint64_t rows, uint64_t columns, int64_t leading) {
  *layout = new Layout{type, int64_t(rows), int64_t(columns), leading};
  return isKnown(type) && leading >= int64_t(rows) ? 0 : 7;
}
int cublasLtMatrixLayoutDestroy(Layout *layout) { return delete layout, 0; }
int cublasLtMatrixLayoutSetAttribute(Layout *layout, int attribute, const void *value, size_t bytes) {
  void *to = attribute == 5 ? static_cast<void *>(&layout->batch) : attribute == 6 ? &layout->stride : nullptr;
  if (to) std::memcpy(to, value, bytes);
  return to ? 0 : 7;
}
int cublasLtMatmulPreferenceCreate(void **preference) { return *preference = new int, 0; }
int cublasLtMatmulPreferenceDestroy(void *preference) { return delete static_cast<int *>(preference), 0; }
int cublasLtMatmulPreferenceSetAttribute(void *, int, const void *, size_t) { return 0; }
struct Heuristic {
  uint64_t algorithm[8];
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};
// Sizes that do not meet have no algorithm.
int cublasLtMatmulAlgoGetHeuristic(void *, Description *d, Layout *a, Layout *b, Layout *, Layout *out, void *, int,
                                   Heuristic *results, int *found) {
  int64_t m = d->transA ? a->columns : a->rows, k = d->transA ? a->rows : a->columns,
          l = d->transB ? b->columns : b->rows, n = d->transB ? b->rows : b->columns;
  bool fits = m == out->rows && n == out->columns && k == l && a->batch == out->batch && b->batch == out->batch;
  bool hasAux = d->epilogue < sumA && (d->epilogue & auxiliary);
  bool hasVector = d->epilogue >= sumA || (d->epilogue & bias);
  if (hasAux) fits &= d->aux && d->auxLeading % 8 == 0 && d->auxLeading >= out->rows && out->batch == 1;
  if (hasVector) fits &= d->vector && d->biasType == out->type;
  if (d->epilogue >= sumA) fits &= out->batch == 1;
  fits &= a->type == b->type && (out->type == a->type || out->type == 0) && (d->compute != 77 || a->type == 0);
  *found = fits;
  results->workspace = workspaceBytes;
  return 0;
}
int cublasLtMatmul(void *, Description *d, const void *alpha, const void *a, Layout *la, const void *b, Layout *lb,
                   const void *beta, const void *, Layout *, void *out, Layout *lo, const void *, void *workspace,
                   size_t bytes, fake::Stream *stream) {
  if (!workspace || bytes < workspaceBytes) return 7;
  int scale = d->compute == 70; // in doubles, else in floats
  return fake::enqueue(stream, [=, desc = *d, la = *la, lb = *lb, lo = *lo, alpha = load(scale, alpha, 0),
                                beta = load(scale, beta, 0)] { multiply(desc, alpha, beta, a, la, b, lb, out, lo); });
}
}
