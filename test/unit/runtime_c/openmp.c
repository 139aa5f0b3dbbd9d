/* openmp PLAN STEPS: a program with OpenMP of its own around a training. Its loops run each iteration once, on as many
 * threads as it asks for, before the training, between its steps and after it. */
#include "cleave_runtime.h"
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void GOMP_parallel(void (*body)(void *), void *data, unsigned threads, unsigned flags);
int omp_get_num_threads(void);
int omp_get_thread_num(void);

enum { trips = 1000, threads = 3 };
static atomic_int times[trips];

/* As GCC compiles the body of "#pragma omp parallel for". */
static void share(void *data) {
  (void)data;
  int count = omp_get_num_threads(), number = omp_get_thread_num();
  for (int i = trips * number / count; i < trips * (number + 1) / count; ++i) atomic_fetch_add(&times[i], 1);
  if (count != threads) atomic_fetch_add(&times[0], trips);
}

static int loop(const char *when) {
  memset(times, 0, sizeof times);
  GOMP_parallel(share, NULL, threads, 0);
  for (int i = 0; i < trips; ++i)
    if (times[i] != 1) return printf("%s iteration %d ran %d times\n", when, i, times[i]), 1;
  return 0;
}

int main(int argc, char **argv) {
  if (argc < 3) return 2;
  int wrong = loop("before the training");
  cleave_options options;
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.trust_code = 1;
  cleave_training *training = cleave_open(argv[1], &options);
  if (!training) return printf("%s\n", cleave_error(NULL)), 3;
  float *bound[8] = {0};
  for (int i = 0; i < 8 && cleave_input_name(training, i); ++i) {
    int64_t bytes = cleave_input_bytes(training, i);
    bound[i] = calloc(1, (size_t)bytes);
    if (cleave_bind(training, cleave_input_name(training, i), bound[i], bytes)) return 3;
  }
  while (cleave_steps_done(training) < atoi(argv[2])) {
    if (cleave_step(training, NULL)) return printf("%s\n", cleave_error(training)), 3;
    wrong |= loop("between the steps");
  }
  cleave_close(training);
  for (int i = 0; i < 8; ++i) free(bound[i]);
  return wrong | loop("after the training");
}
