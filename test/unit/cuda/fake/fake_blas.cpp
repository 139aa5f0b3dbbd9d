// cuBLASLt in plain loops, in the order of k, on the fake driver's streams.
#include "test/unit/cuda/fake/fake_streams.h"
#include <cstdint>
#include <cstring>

namespace {
struct Description {
  int transA = 0, transB = 0, epilogue = 1;
  const float *bias = nullptr;
};
struct Layout {
  int type;
  int64_t rows, columns, leading;
  int32_t batch = 1;
  int64_t stride = 0;
};
constexpr size_t workspaceBytes = 1024;
} // namespace

extern "C" {
const char *cublasLtGetStatusString(int) { return "not as the fake library wants it"; }
int cublasLtCreate(void **handle) { return *handle = new int, 0; }
int cublasLtDestroy(void *handle) { return delete static_cast<int *>(handle), 0; }
int cublasLtMatmulDescCreate(Description **description, int compute, int scale) {
  return *description = new Description, compute == 68 && scale == 0 ? 0 : 15;
}
int cublasLtMatmulDescDestroy(Description *description) { return delete description, 0; }
int cublasLtMatmulDescSetAttribute(Description *d, int attribute, const void *value, size_t bytes) {
  void *to = attribute == 3   ? static_cast<void *>(&d->transA)
             : attribute == 4 ? &d->transB
             : attribute == 7 ? &d->epilogue
             : attribute == 8 ? static_cast<void *>(&d->bias)
                              : nullptr;
  if (to) std::memcpy(to, value, bytes);
  return to || attribute == 26 ? 0 : 7;
}
int cublasLtMatrixLayoutCreate(Layout **layout, int type, uint64_t rows, uint64_t columns, int64_t leading) {
  *layout = new Layout{type, int64_t(rows), int64_t(columns), leading};
  return type == 0 && leading >= int64_t(rows) ? 0 : 7;
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
  *found = m == out->rows && n == out->columns && k == l && a->batch == out->batch && b->batch == out->batch;
  results->workspace = workspaceBytes;
  return 0;
}
int cublasLtMatmul(void *, Description *d, const float *alpha, const float *a, Layout *la, const float *b, Layout *lb,
                   const float *beta, const float *, Layout *, float *out, Layout *lo, const void *, void *workspace,
                   size_t bytes, fake::Stream *stream) {
  if (!workspace || bytes < workspaceBytes) return 7;
  return fake::enqueue(stream, [=, desc = *d, la = *la, lb = *lb, lo = *lo, alpha = *alpha, beta = *beta] {
    int64_t depth = desc.transA ? la.rows : la.columns;
    for (int64_t i = 0; i < lo.batch; ++i)
      for (int64_t c = 0; c < lo.columns; ++c)
        for (int64_t r = 0; r < lo.rows; ++r) {
          float sum = 0;
          for (int64_t k = 0; k < depth; ++k)
            sum += a[i * la.stride + (desc.transA ? r * la.leading + k : k * la.leading + r)] *
                   b[i * lb.stride + (desc.transB ? k * lb.leading + c : c * lb.leading + k)];
          float &to = out[i * lo.stride + c * lo.leading + r];
          to = alpha * sum + (beta != 0 ? beta * to : 0) + (desc.epilogue == 4 ? desc.bias[r] : 0);
        }
  });
}
}
