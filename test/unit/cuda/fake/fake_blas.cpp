// cuBLASLt in plain loops, in the order of k, on the fake driver's streams. Requests that the library's documentation
// rules out have no algorithm here either: an auxiliary matrix whose rows are no multiple of 8 elements, a bias of
// another type than the result, 8 bits in another layout than TN or less aligned than 16 bytes, both in e5m2. The first
// of a product's three algorithms is slow and the last does not run; one that was made for another product is refused,
// and so are addresses that are less aligned than was said when it was asked for.
#include "test/unit/cuda/fake/fake_cuda.h"
#include "test/unit/cuda/fake/fake_streams.h"
#include "test/unit/cuda/fake/numbers.h"
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <thread>

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
struct Preference {
  uint64_t workspace = 0;
  uint32_t alignments[4] = {256, 256, 256, 256}; // of A, B, C, D: the library's own assumption
};
struct Algorithm { // cublasLtMatmulAlgo_t
  uint64_t number, product, alignments, vector, rest[4];
};
constexpr size_t workspaceBytes = 1024;
constexpr std::chrono::microseconds slowness{300};
std::atomic<int> epilogueError{0};
constexpr int bias = 4, gelu = 32, geluGradient = 192, sumA = 256, sumB = 512, auxiliary = 128;

bool isEight(int type) { return type == 28 || type == 29; }
bool isKnown(int type) { return type == 0 || type == 1 || type == 2 || type == 14 || isEight(type); }
fake::Number number(int type) {
  return type == 28   ? fake::Number::E4m3
         : type == 29 ? fake::Number::E5m2
         : type == 0  ? fake::Number::F32
         : type == 1  ? fake::Number::F64
         : type == 2  ? fake::Number::F16
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
int cublasLtCreate(void **handle) { return *handle = new int(fake::currentDevice), fake::currentDevice < 0; }
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
  bool isLong = attribute == 8 || attribute == 11 || attribute == 12;
  if (!to || bytes != (isLong ? 8 : 4)) return 7;
  return std::memcpy(to, value, bytes), 0;
}
int cublasLtMatrixLayoutCreate(Layout **layout, int type, uint64_t rows, uint64_t columns, int64_t leading) {
  *layout = new Layout{type, int64_t(rows), int64_t(columns), leading};
  return isKnown(type) && leading >= int64_t(rows) ? 0 : 7;
}
int cublasLtMatrixLayoutDestroy(Layout *layout) { return delete layout, 0; }
int cublasLtMatrixLayoutSetAttribute(Layout *layout, int attribute, const void *value, size_t bytes) {
  void *to = attribute == 5 ? static_cast<void *>(&layout->batch) : attribute == 6 ? &layout->stride : nullptr;
  if (!to || bytes != (attribute == 5 ? 4 : 8)) return 7;
  return std::memcpy(to, value, bytes), 0;
}
int cublasLtMatmulPreferenceCreate(Preference **preference) { return *preference = new Preference, 0; }
int cublasLtMatmulPreferenceDestroy(Preference *preference) { return delete preference, 0; }
int cublasLtMatmulPreferenceSetAttribute(Preference *p, int attribute, const void *value, size_t bytes) {
  if (attribute == 1 && bytes == 8) return std::memcpy(&p->workspace, value, 8), 0;
  if (attribute < 5 || attribute > 8 || bytes != 4) return 7;
  return std::memcpy(&p->alignments[attribute - 5], value, 4), 0;
}
size_t cublasLtGetVersion() { return 130001; }
void fake_blas_epilogues(int error) { epilogueError = error; }
}

namespace {
struct Heuristic {
  Algorithm algorithm;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};

// Sizes that do not meet have no algorithm.
bool hasAlgorithm(const Description *d, const Layout *a, const Layout *b, const Layout *out) {
  int64_t m = d->transA ? a->columns : a->rows, k = d->transA ? a->rows : a->columns,
          l = d->transB ? b->columns : b->rows, n = d->transB ? b->rows : b->columns;
  bool fits = m == out->rows && n == out->columns && k == l && a->batch == out->batch && b->batch == out->batch;
  bool hasAux = d->epilogue < sumA && ((d->epilogue & auxiliary) || d->epilogue == geluGradient);
  bool hasVector = d->epilogue >= sumA || (d->epilogue & bias);
  if (hasAux) fits &= d->aux && d->auxLeading % 8 == 0 && d->auxLeading >= out->rows && out->batch == 1;
  if (hasVector) fits &= d->vector && d->biasType == out->type;
  if (d->epilogue >= sumA) fits &= out->batch == 1;
  if (isEight(a->type) || isEight(b->type)) {
    bool isAligned = k % 16 == 0 && m % 16 == 0 && a->leading % 16 == 0 && b->leading % 16 == 0 &&
                     out->leading * (out->type == 0 ? 4 : 2) % 16 == 0;
    bool areTypes = isEight(a->type) && isEight(b->type) && a->type + b->type < 58 &&
                    (out->type == 0 || out->type == 2 || out->type == 14);
    return fits && isAligned && areTypes && d->transA && !d->transB && d->compute == 68 && d->epilogue == 1;
  }
  return fits && a->type == b->type && (out->type == a->type || out->type == 0) && (d->compute != 77 || a->type == 0);
}
uint64_t lowBit(const void *pointer) {
  auto address = reinterpret_cast<uint64_t>(pointer);
  return address & -address;
}
// Which product it is, but for addresses.
uint64_t fingerprint(const Description *d, const Layout *a, const Layout *b, const Layout *out) {
  uint64_t mixed = 14695981039346656037U;
  auto add = [&](auto value) { mixed = (mixed ^ static_cast<uint64_t>(value)) * 1099511628211U; };
  add(d->compute), add(d->transA), add(d->transB), add(d->epilogue), add(d->biasType), add(d->auxLeading);
  for (const Layout *layout : {a, b, out})
    add(layout->type), add(layout->rows), add(layout->columns), add(layout->leading), add(layout->batch),
        add(layout->stride);
  return mixed;
}
} // namespace

extern "C" {
int cublasLtMatmulAlgoGetHeuristic(void *, Description *d, Layout *a, Layout *b, Layout *, Layout *out, Preference *p,
                                   int requested, Heuristic *results, int *found) {
  *found = 0;
  if (d->epilogue != 1 && epilogueError) return epilogueError;
  if (!hasAlgorithm(d, a, b, out) || p->workspace < workspaceBytes) return 15;
  uint64_t alignments = 0;
  for (uint32_t alignment : p->alignments) alignments = alignments << 16 | alignment;
  for (; *found < requested && *found < 3; ++*found)
    results[*found] = {{uint64_t(*found), fingerprint(d, a, b, out), alignments, d->vector ? lowBit(d->vector) : 0, {}},
                       workspaceBytes,
                       0,
                       1,
                       {}};
  return 0;
}
int cublasLtMatmulAlgoCheck(void *, Description *d, Layout *a, Layout *b, Layout *, Layout *out,
                            const Algorithm *algorithm, Heuristic *result) {
  if (algorithm->product != fingerprint(d, a, b, out)) return 7;
  result->workspace = workspaceBytes, result->state = 0;
  return 0;
}
int cublasLtMatmul(const int *handle, Description *d, const void *alpha, const void *a, Layout *la, const void *b,
                   Layout *lb, const void *beta, const void *c, Layout *, void *out, Layout *lo,
                   const Algorithm *algorithm, void *workspace, size_t bytes, fake::Stream *stream) {
  if (*handle != fake::deviceOf(stream)) return 7; // of another GPU
  if (!workspace || bytes < workspaceBytes || lowBit(workspace) < 256) return 7;
  if (!algorithm || algorithm->product != fingerprint(d, la, lb, lo)) return 7;
  if (algorithm->number == 2) return 15; // the heuristic does not promise that it runs
  const void *operands[] = {a, b, c, out};
  for (int i = 0; i < 4; ++i)
    if (lowBit(operands[i]) < (algorithm->alignments >> 16 * (3 - i) & 0xffff)) return 7;
  if (d->vector && lowBit(d->vector) < std::min<uint64_t>(algorithm->vector, 16)) return 7;
  int scale = d->compute == 70; // in doubles, else in floats
  bool isSlow = algorithm->number == 0;
  return fake::enqueue(
      stream, [=, desc = *d, la = *la, lb = *lb, lo = *lo, alpha = load(scale, alpha, 0), beta = load(scale, beta, 0)] {
        if (isSlow) std::this_thread::sleep_for(slowness);
        multiply(desc, alpha, beta, a, la, b, lb, out, lo);
      });
}
}
