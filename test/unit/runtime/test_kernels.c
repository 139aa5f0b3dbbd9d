// Kernels of the hand-made MLP plan (mlp_plan.cpp): buffers are inputs then outputs.
typedef long int64_t;

void relu(int64_t begin, int64_t end, void *const *buffers, const int64_t *scalars) {
  const float *x = buffers[0];
  float *y = buffers[1];
  for (int64_t i = begin; i < end; ++i) y[i] = x[i] > 0 ? x[i] : 0;
}
void relu_gradient(int64_t begin, int64_t end, void *const *buffers, const int64_t *scalars) {
  const float *dy = buffers[0], *y = buffers[1];
  float *dx = buffers[2];
  for (int64_t i = begin; i < end; ++i) dx[i] = y[i] > 0 ? dy[i] : 0;
}
// scalars: elements, global elements. Writes the gradient of mean (y - t)^2 and this device's part of the mean.
void mse(int64_t begin, int64_t end, void *const *buffers, const int64_t *scalars) {
  const float *y = buffers[0], *t = buffers[1];
  float *dy = buffers[2], *loss = buffers[3];
  double sum = 0;
  for (int64_t i = 0; i < scalars[0]; ++i) {
    float d = y[i] - t[i];
    sum += (double)d * d;
    dy[i] = 2 * d / (float)scalars[1];
  }
  loss[0] = (float)(sum / (double)scalars[1]);
}
void sgd(int64_t begin, int64_t end, void *const *buffers, const int64_t *scalars) {
  const float *g = buffers[0], *lr = buffers[1];
  float *w = buffers[2];
  for (int64_t i = begin; i < end; ++i) w[i] -= lr[0] * g[i];
}
void column_sum(int64_t begin, int64_t end, void *const *buffers, const int64_t *scalars) { // rows = scalars[0], columns = scalars[1]
  const float *x = buffers[0];
  float *y = buffers[1];
  for (int64_t c = begin; c < end; ++c) {
    float sum = 0;
    for (int64_t r = 0; r < scalars[0]; ++r) sum += x[r * scalars[1] + c];
    y[c] = sum;
  }
}
void add(int64_t begin, int64_t end, void *const *buffers, const int64_t *scalars) {
  const float *a = buffers[0], *b = buffers[1];
  float *c = buffers[2];
  for (int64_t i = begin; i < end; ++i) c[i] = a[i] + b[i];
}
