/* example PLAN SNAPSHOTS STEPS [resume|impatient]: trains a plan with inputs "x" and "t" on data of its own, snapshots,
 * prints.
 */
#include "cleave_runtime.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void lost(const char *why, void *data) { fprintf(stderr, "%s %s\n", (const char *)data, why); }

static int fail(const cleave_training *training) {
  fprintf(stderr, "error: %s\n", cleave_error(training));
  return cleave_error_status(training);
}

int main(int argc, char **argv) {
  if (argc < 4 || cleave_runtime_version() < CLEAVE_RUNTIME_VERSION) return 2;
  cleave_options options;
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.snapshots = argv[2];
  options.trust_code = 1; /* the caller's own plan */
  options.resume = argc > 4 && strcmp(argv[4], "resume") == 0;
  options.step_timeout = argc > 4 && strcmp(argv[4], "impatient") == 0 ? 2 : 0;
  options.on_lost = lost;
  options.on_lost_data = "lost:";
  cleave_training *training = cleave_open(argv[1], &options);
  if (!training) return fail(NULL);
  float *bound[8] = {0}; /* read in every step */
  for (int i = 0; i < 8 && cleave_input_name(training, i); ++i) {
    int64_t sizes[2];
    if (strcmp(cleave_input_type(training, i), "f32") || cleave_input_shape(training, i, sizes, 2) != 2) return 4;
    if (sizes[0] * sizes[1] * (int64_t)sizeof(float) != cleave_input_bytes(training, i)) return 5;
    int64_t bytes = cleave_input_bytes(training, i), count = bytes / (int64_t)sizeof(float);
    float *data = bound[i] = malloc((size_t)bytes);
    for (int64_t j = 0; j < count; ++j) data[j] = (float)((j * 7919 + i * 31) % 101) / 101.0f - 0.5f;
    if (cleave_bind(training, cleave_input_name(training, i), data, bytes)) return fail(training);
  }
  cleave_metrics metrics;
  metrics.size = sizeof metrics;
  while (cleave_steps_done(training) < atoi(argv[3])) {
    if (cleave_step(training, &metrics)) return fail(training);
    printf("step %lld loss %a\n", (long long)metrics.step, metrics.loss);
    fflush(stdout);
  }
  double sum = 0;
  for (int i = 0; cleave_parameter_name(training, i); ++i) {
    const char *name = cleave_parameter_name(training, i);
    int64_t bytes = cleave_parameter_bytes(training, name);
    float *values = malloc((size_t)bytes);
    if (cleave_read_parameter(training, name, values, bytes)) return fail(training);
    for (int64_t j = 0; j < bytes / (int64_t)sizeof(float); ++j) sum += (double)values[j] * (double)(j % 13 + 1);
    free(values);
  }
  printf("parameters %a\n", sum);
  if (cleave_read_parameter(training, "nowhere", &sum, sizeof sum) != 1) return 3;
  if (cleave_snapshot(training)) return fail(training);
  cleave_close(training);
  for (int i = 0; i < 8; ++i) free(bound[i]);
  return 0;
}
